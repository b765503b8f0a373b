-- What bounds the profiled kernel time: each class with its share of the time and its time-weighted SOL.
-- Set-up and reference kernels count only if there are no others.
CREATE VIEW _kernel_verdict AS
WITH launches AS (
    SELECT
        -- Small grids are one limit, whether the kernels are short or not.
        if(subclass = 'small_grid', 'latency', bound) AS bound,
        subclass,
        report_id,
        launch_id,
        duration_ns,
        greatest(compute_sol_pct, CASE unit.side WHEN 'compute' THEN unit.pct END) AS compute_sol_pct,
        greatest(memory_sol_pct, CASE unit.side WHEN 'memory' THEN unit.pct END) AS memory_sol_pct
    FROM _bottleneck_class
    ANTI JOIN (
        FROM _setup_launches WHERE EXISTS (
            FROM ncu_launches ANTI JOIN _setup_launches USING (report_id, launch_id)
        )
    ) USING (report_id, launch_id)
    WHERE duration_ns > 0 AND (max_sol_pct IS NOT NULL OR bound != 'unknown')
),
classes AS (
    SELECT
        bound,
        subclass,
        sum(duration_ns ORDER BY report_id, launch_id) AS time_ns,
        greatest(
            time_weighted(compute_sol_pct, duration_ns), time_weighted(memory_sol_pct, duration_ns)
        ) AS sol_pct
    FROM launches
    GROUP BY bound, subclass
)
SELECT
    row_number() OVER (ORDER BY time_ns DESC, bound, subclass) AS rank,
    bound,
    subclass,
    100 * time_ns / nullif((SELECT ordered_sum(time_ns) FROM classes), 0) AS share_pct,
    sol_pct
FROM classes
ORDER BY rank;
