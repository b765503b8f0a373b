-- Durations of kernels by profiler, one row per execution: those in the analyzed windows of timelines (see
-- analysis_windows), and all profiled launches. ncu serializes kernels and controls clocks; nsys does
-- neither. The SM clock is the clock of the launch for ncu, and the median over the window for a timeline
-- with sampled GPU metrics.
-- @materialize
CREATE VIEW _timed_kernels AS
SELECT
    k.report_id,
    r.kind AS profiler,
    k.demangled AS kernel_name,
    concat_ws(', ', k.grid_x, k.grid_y, k.grid_z) AS grid,
    concat_ws(', ', k.block_x, k.block_y, k.block_z) AS block,
    k.dur_ns::DOUBLE AS duration_ns,
    c.sm_clock_hz,
    NULL::DOUBLE AS dram_clock_hz
FROM _analysed_kernels AS k
JOIN reports AS r ON r.report_id = k.report_id
LEFT JOIN _sampled_clocks AS c ON c.report_id = k.report_id
UNION ALL
SELECT
    l.report_id,
    'ncu',
    l.kernel_demangled,
    concat_ws(', ', l.grid_x, l.grid_y, l.grid_z),
    concat_ws(', ', l.block_x, l.block_y, l.block_z),
    l.duration_ns,
    m.gpc_clock_hz,
    m.dram_clock_hz
FROM ncu_launches AS l
JOIN kernel_metrics AS m USING (report_id, launch_id)
WHERE l.duration_ns IS NOT NULL;
