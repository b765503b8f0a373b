-- Kernels of the process to profile, in the window: template instances and sizes of shared memory of a
-- configuration (function, grid, block) apart.  `place` ranks configurations, `wanted` are the
-- instances that are to be profiled: the longest of the chosen configurations, until they cover what is
-- asked for.
-- @materialize
CREATE VIEW _plan_variants AS
WITH own AS (
    SELECT k.*
    FROM _window_kernels AS k
    JOIN _profiled_process AS p
        ON p.report_id = k.report_id
            AND p.pid IS NOT DISTINCT FROM k.pid
            AND p.cuda_device IS NOT DISTINCT FROM k.cuda_device
    WHERE k.launches > 0
),
units AS (
    SELECT report_id, communication, name, grid, block, sum(time_ns)::BIGINT AS unit_ns
    FROM own
    GROUP BY ALL
),
placed AS (
    SELECT
        *,
        row_number() OVER ordered AS place,
        (sum(unit_ns) OVER ordered)::BIGINT AS sum_ns,
        (sum(unit_ns) OVER (PARTITION BY report_id, communication))::BIGINT AS all_ns
    FROM units
    WINDOW ordered AS (
        PARTITION BY report_id, communication
        ORDER BY unit_ns DESC, name, grid, block ROWS UNBOUNDED PRECEDING
    )
),
decided AS (
    SELECT
        o.*,
        u.place,
        u.all_ns,
        100.0 * u.unit_ns / nullif(u.all_ns, 0) AS share_pct,
        100.0 * u.sum_ns / nullif(u.all_ns, 0) AS cumulative_pct,
        NOT o.communication
            AND 100.0 * (u.sum_ns - u.unit_ns) < threshold('plan.coverage_pct') * u.all_ns AS needed,
        needed AND u.place <= threshold('plan.max_kernels') AS chosen
    FROM own AS o
    JOIN placed AS u USING (report_id, communication, name, grid, block)
)
SELECT
    *,
    chosen AND 100.0 * coalesce(sum(time_ns) FILTER (chosen) OVER (
        PARTITION BY report_id
        ORDER BY time_ns DESC, demangled, grid, block, smem, filter_name
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) < threshold('plan.coverage_pct') * all_ns AS wanted
FROM decided;
