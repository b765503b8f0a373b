-- Kernels of the analyzed window of timelines that were also profiled, each with its profile if it
-- has one.  Launches that take much longer or shorter than the profiled ones were not profiled.
-- @materialize
CREATE VIEW _step_kernels AS
WITH launches AS (
    SELECT
        k.report_id,
        t.device,
        w.kind AS window_kind,
        w.steps,
        k.name,
        k.demangled,
        concat_ws(',', k.grid_x, k.grid_y, k.grid_z) AS grid,
        concat_ws(',', k.block_x, k.block_y, k.block_z) AS block,
        k.dur_ns
    FROM nsys_kernels AS k
    JOIN _tracks AS t
        ON t.report_id = k.report_id
            AND t.pid IS NOT DISTINCT FROM k.pid
            AND t.cuda_device IS NOT DISTINCT FROM k.device
    JOIN analysis_windows AS w
        ON w.report_id = t.report_id
            AND w.device IS NOT DISTINCT FROM t.device
            AND k.start_ns >= w.start_ns
            AND k.start_ns < w.end_ns
    WHERE k.report_id IN (SELECT report_id FROM _report_pairs)
),
keys AS (
    SELECT demangled, kernel_key(demangled) AS key
    FROM (SELECT DISTINCT demangled FROM launches)
),
matched AS (
    SELECT
        l.* EXCLUDE (name, dur_ns),
        is_communication(l.name) AS communication,
        p.key,
        l.dur_ns,
        takes_as_long(l.dur_ns, p.min_ns, p.max_ns) AS alike
    FROM launches AS l
    JOIN keys USING (demangled)
    LEFT JOIN _profiled_kernels AS p
        ON p.report_id = l.report_id AND p.key = keys.key AND p.grid = l.grid AND p.block = l.block
),
sums AS (
    SELECT
        report_id, device, window_kind, steps, demangled, grid, block, communication, key, alike,
        sum(dur_ns)::BIGINT AS time_ns
    FROM matched
    GROUP BY ALL
)
SELECT
    s.* EXCLUDE (key, alike),
    p.key,
    p.ncu_launches,
    p.bound,
    -- Of the longest launch that has one, which may be of another bound.
    p.subclass,
    p.max_sol_pct
FROM sums AS s
LEFT JOIN _profiled_kernels AS p
    ON s.alike AND p.report_id = s.report_id AND p.key = s.key AND p.grid = s.grid AND p.block = s.block;
