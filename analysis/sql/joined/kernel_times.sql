-- Time of each kernel configuration in each report, by profiler. Report comparisons use this view to match
-- kernels. Times from different profilers are never compared.
--
-- report_id VARCHAR: report
-- profiler VARCHAR: nsys or torch for timelines, ncu for profiled launches
-- kernel_name VARCHAR: kernel name with template arguments
-- grid VARCHAR: grid dimensions in blocks, as x, y, z
-- block VARCHAR: block dimensions in threads, as x, y, z
-- launches BIGINT: number of launches; on timelines, only those within the analyzed windows
-- median_ns DOUBLE: median duration, ns
-- total_ns DOUBLE: sum of the durations, ns
-- step_ns DOUBLE: sum of the durations per step and GPU, ns; NULL without steps, or if --window selects more
--   than the steps
-- sm_clock_hz DOUBLE: median SM clock, Hz; NULL if unknown
-- dram_clock_hz DOUBLE: median DRAM clock, Hz; NULL if unknown
CREATE VIEW kernel_times AS
WITH gpu_steps AS (
    SELECT report_id, sum(steps)::BIGINT AS steps
    FROM analysis_windows
    WHERE kind IN ('steady', 'step')
    GROUP BY report_id
)
SELECT
    t.report_id,
    t.profiler,
    t.kernel_name,
    t.grid,
    t.block,
    count(*) AS launches,
    median(t.duration_ns) AS median_ns,
    ordered_sum(t.duration_ns) AS total_ns,
    ordered_sum(t.duration_ns) / CASE WHEN t.profiler != 'ncu' THEN any_value(s.steps) END AS step_ns,
    median(t.sm_clock_hz) AS sm_clock_hz,
    median(t.dram_clock_hz) AS dram_clock_hz
FROM _timed_kernels AS t
LEFT JOIN gpu_steps AS s ON s.report_id = t.report_id
GROUP BY t.report_id, t.profiler, t.kernel_name, t.grid, t.block
ORDER BY t.report_id, total_ns DESC, t.kernel_name, t.grid, t.block;
