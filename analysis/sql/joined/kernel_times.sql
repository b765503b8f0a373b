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
WITH every_launch AS (
    SELECT
        report_id,
        'nsys' AS profiler,
        demangled AS kernel_name,
        concat_ws(', ', grid_x, grid_y, grid_z) AS grid,
        concat_ws(', ', block_x, block_y, block_z) AS block,
        dur_ns
    FROM nsys_kernels
    UNION ALL
    SELECT
        report_id,
        'ncu',
        kernel_demangled,
        concat_ws(', ', grid_x, grid_y, grid_z),
        concat_ws(', ', block_x, block_y, block_z),
        duration_ns
    FROM ncu_launches
    WHERE duration_ns IS NOT NULL
)
SELECT
    l.report_id,
    CASE WHEN r.kind = 'torch' THEN 'torch' ELSE l.profiler END AS profiler,
    l.kernel_name,
    l.grid,
    l.block,
    count(*) AS launches,
    median(l.dur_ns) AS median_ns,
    sum(l.dur_ns)::DOUBLE AS total_ns
FROM every_launch AS l
JOIN reports AS r USING (report_id)
GROUP BY l.report_id, r.kind, l.profiler, l.kernel_name, l.grid, l.block
ORDER BY l.report_id, total_ns DESC, l.kernel_name, l.grid, l.block;
