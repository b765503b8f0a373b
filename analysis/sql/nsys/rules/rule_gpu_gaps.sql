-- Idle intervals of 500 ms or more (threshold analyze.gap_ns), longest first, as in `nsys analyze -r
-- gpu_gaps`. The whole GPU must be idle, not just one process on it, and CUDA graphs traced as a whole count
-- as work. As in nsys, time of the profiler does not count as idle. A row limit never drops the longest
-- intervals.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration without the profiler's own time, ns
-- start_ns BIGINT: start of the interval, ns
-- device BIGINT: physical GPU number
-- cause VARCHAR: cause, as in gpu_idle_gaps
CREATE VIEW rule_gpu_gaps AS
SELECT
    report_id,
    dur_ns - profiler_overhead_ns AS duration_ns,
    start_ns,
    device,
    cause
FROM _gaps
JOIN _gpus USING (track)
WHERE dur_ns - profiler_overhead_ns >= threshold('analyze.gap_ns')
ORDER BY report_id, duration_ns DESC, start_ns, device;
