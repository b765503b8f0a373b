-- Kernels of the analyzed window of timelines that were also profiled, each with its profile if it
-- has one.
-- @materialize
CREATE VIEW _step_kernels AS
WITH timeline AS (
    SELECT
        report_id,
        device,
        window_kind,
        steps,
        demangled,
        grid,
        block,
        communication,
        sum(time_ns)::BIGINT AS time_ns
    FROM _window_kernels
    WHERE launches > 0 AND report_id IN (SELECT report_id FROM _report_pairs)
    GROUP BY ALL
)
SELECT
    t.*,
    p.ncu_launches,
    p.bound,
    -- Of the longest launch that has one, which may be of another bound.
    p.subclass,
    p.max_sol_pct
FROM timeline AS t
LEFT JOIN _profiled_kernels AS p
    ON p.report_id = t.report_id
        AND p.key = kernel_key(t.demangled)
        AND p.grid = t.grid
        AND p.block = t.block;
