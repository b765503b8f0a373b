-- Kernels in the analyzed window of profiled timelines, each with its profile if there is one. Launches that
-- take much longer or shorter than the profiled ones count as not profiled. Kernels with which a benchmark
-- flushes the L2 cache are excluded.
-- @materialize
CREATE VIEW _step_kernels AS
WITH launches AS (
    SELECT
        report_id,
        gpu AS device,
        window_kind,
        steps,
        name,
        demangled,
        concat_ws(',', grid_x, grid_y, grid_z) AS grid,
        concat_ws(',', block_x, block_y, block_z) AS block,
        dur_ns
    FROM _windowed_kernels AS k
    ANTI JOIN _flush_kernels AS f
        ON f.report_id = k.report_id AND f.device = k.gpu AND f.demangled = coalesce(k.demangled, k.name)
    WHERE inside AND report_id IN (SELECT report_id FROM _report_pairs)
),
keys AS (
    SELECT demangled, kernel_key(demangled) AS key
    FROM (SELECT DISTINCT demangled FROM launches)
),
matched AS (
    SELECT
        l.* EXCLUDE (name, dur_ns),
        is_communication(l.name, coalesce(l.demangled, l.name)) AS communication,
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
    -- From the longest launch with a value, which may have another bound.
    p.subclass,
    p.max_sol_pct
FROM sums AS s
LEFT JOIN _profiled_kernels AS p
    ON s.alike AND p.report_id = s.report_id AND p.key = s.key AND p.grid = s.grid AND p.block = s.block;
