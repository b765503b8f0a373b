-- Bounds of the profiled time: the classes with their share, and their SOL weighted by time.
CREATE VIEW _kernel_verdict AS
WITH launches AS (
    SELECT b.bound, b.subclass, s.report_id, s.launch_id, s.duration_ns, s.compute_sol_pct, s.memory_sol_pct
    FROM kernel_sol AS s
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    WHERE s.duration_ns > 0 AND s.max_sol_pct IS NOT NULL
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
