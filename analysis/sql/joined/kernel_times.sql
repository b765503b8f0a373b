-- Time of each kernel configuration in each report, by the profiler that measured it: what
-- comparisons match by. ncu serialises kernels and holds clocks, nsys does neither, so that times
-- of the two are never compared.
--
-- report_id: report
-- profiler: nsys (or torch) for the timeline, ncu for profiled launches
-- kernel_name: kernel name with template arguments
-- grid: blocks, as x, y, z
-- block: threads, as x, y, z
-- launches: launches
-- median_ns: median duration, ns
-- total_ns: sum of durations, ns
CREATE VIEW kernel_times AS
WITH timed AS (
    SELECT
        report_id,
        'nsys' AS profiler,
        demangled AS kernel_name,
        concat_ws(', ', grid_x, grid_y, grid_z) AS grid,
        concat_ws(', ', block_x, block_y, block_z) AS block,
        count(*) AS launches,
        median(dur_ns) AS median_ns,
        sum(dur_ns)::DOUBLE AS total_ns
    FROM nsys_kernels
    GROUP BY report_id, demangled, grid, block
    UNION ALL
    SELECT
        report_id,
        'ncu',
        kernel_demangled,
        concat_ws(', ', grid_x, grid_y, grid_z) AS grid,
        concat_ws(', ', block_x, block_y, block_z) AS block,
        count(*),
        median(duration_ns),
        ordered_sum(duration_ns)
    FROM ncu_launches
    WHERE duration_ns IS NOT NULL
    GROUP BY report_id, kernel_demangled, grid, block
)
SELECT
    t.report_id,
    CASE WHEN r.kind = 'torch' THEN 'torch' ELSE t.profiler END AS profiler,
    t.kernel_name,
    t.grid,
    t.block,
    t.launches,
    t.median_ns,
    t.total_ns
FROM timed AS t
JOIN reports AS r USING (report_id)
ORDER BY t.report_id, t.total_ns DESC, t.kernel_name, t.grid, t.block;
