-- Intervals of 500 ms or more (threshold analyze.gap_ns) during which a GPU is idle, longest first, as in
-- `nsys analyze -r gpu_gaps`. The whole GPU must be idle, not only one process. CUDA graphs that were
-- traced as a whole count as work. As in nsys, profiler overhead does not count as idle time. A row limit
-- removes the shortest intervals first.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration of the interval without profiler overhead, ns
-- start_ns BIGINT: start of the interval, ns
-- device BIGINT: physical GPU number
-- cause VARCHAR: cause of the interval, as in gpu_idle_gaps
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
