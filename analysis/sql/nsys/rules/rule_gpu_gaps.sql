-- Idle intervals of 500 ms or more (threshold analyze.gap_ns), the longest first, as `nsys analyze
-- -r gpu_gaps`.  Idle is the GPU, not a process on it; CUDA graphs traced as a whole are work; the
-- longest are never lost to a limit. Time of the profiler is not idle, as in nsys.
--
-- report_id: report
-- duration_ns: length without the profiler's own time, ns
-- start_ns: start, ns
-- device: GPU number of the machine
-- cause: as in gpu_idle_gaps
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
