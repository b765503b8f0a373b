-- State of the GPUs of a program while `perfpipe attach` looked at it, as NVML shows it. A GPU is busy while
-- any kernel of any program runs on it, so this is an upper bound of the program's own time.
--
-- report_id VARCHAR: report
-- device BIGINT: number of the GPU, as nvidia-smi counts
-- name VARCHAR: model of the GPU
-- samples BIGINT: number of samples
-- busy_pct DOUBLE: mean share of the time in which a kernel ran on the GPU, %; NULL if the GPU does not say
-- memory_bytes BIGINT: largest memory in use by all programs, bytes
-- program_bytes BIGINT: largest memory in use by the program, bytes; NULL if NVML does not show it
-- power_w DOUBLE: mean power, W
-- sm_mhz DOUBLE: median SM clock, MHz
CREATE VIEW gpu_use AS
SELECT
    report_id,
    device,
    any_value(name ORDER BY time_ns) AS name,
    count(*) AS samples,
    avg(busy_pct) AS busy_pct,
    max(memory_bytes) AS memory_bytes,
    max(program_bytes) AS program_bytes,
    avg(power_w) AS power_w,
    median(sm_mhz) AS sm_mhz
FROM gpu_samples
GROUP BY report_id, device
ORDER BY report_id, device;
