-- Time of each configuration, measured without a profiler, and the resulting throughput.
--
-- run_id VARCHAR: run
-- task_index BIGINT: configuration, counted from 0
-- label VARCHAR: parameters of the configuration as text
-- status VARCHAR: done, or failed with the reason
-- median_ms DOUBLE: median iteration time, ms
-- min_ms DOUBLE: shortest iteration time, ms
-- iterations BIGINT: number of timed iterations; NULL without timing
-- model_flop_per_s DOUBLE: FLOPs declared in the workload file / median time, FLOP/s
-- mfu_pct DOUBLE: MFU: model_flop_per_s, % of the vendor's dense peak for the data type, on the GPU model
--   that most of the run's reports use; NULL if the FLOPs or the GPU are unknown
-- effective_bytes_per_s DOUBLE: effective bandwidth: bytes declared in the workload file / median time,
--   byte/s
-- max_abs_error DOUBLE: maximum absolute difference between the result and the program's reference result
-- timing_method VARCHAR: timing method: queued (GPU time only), events (including launch overhead), or
--   observed (perfpipe timed the steps of a program that prints no times)
-- sm_mhz DOUBLE: median SM clock during timing, MHz
-- power_w DOUBLE: median power during timing, W
-- step_energy_j DOUBLE: energy of a step that perfpipe observed, J; NULL if unknown (reason: run_tasks)
-- energy_j DOUBLE: energy of one execution of the program, J; NULL if unknown
-- mean_power_w DOUBLE: average power over an execution, on all GPUs that the program may use, W
-- throttled_by VARCHAR: reasons for clock throttling during timing; NULL without throttling or if the reasons
--   are unknown
-- gpu VARCHAR: GPU model whose vendor peak is used; NULL if unknown
-- peak_source VARCHAR: vendor document that states the peak
CREATE VIEW run_times AS
WITH sources AS (
    SELECT t.run_id, r.report_id, r.gpu, r.sm_count
    FROM (SELECT DISTINCT run_id, unnest(reports) AS report_id FROM run_tasks) AS t
    JOIN reports AS r USING (report_id)
    WHERE r.gpu IS NOT NULL
),
models AS (
    SELECT run_id, arg_max(report_id, (sm_count, report_id)) AS report_id
    FROM sources
    GROUP BY run_id, gpu
    QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY count(*) DESC, gpu) = 1
),
peaks AS (
    SELECT m.run_id, p.dtype, p.gpu, p.source, p.flop_per_s
    FROM models AS m
    JOIN gpu_peaks AS p USING (report_id)
),
known AS (
    SELECT run_id, any_value(gpu ORDER BY dtype) AS gpu, any_value(source ORDER BY dtype) AS source
    FROM peaks
    GROUP BY run_id
),
rates AS (
    SELECT
        *,
        flops / nullif(median_ms / 1e3, 0) AS model_flop_per_s,
        bytes / nullif(median_ms / 1e3, 0) AS effective_bytes_per_s
    FROM run_tasks
)
SELECT
    t.run_id,
    t.task_index,
    t.label,
    concat_ws(': ', t.status, t.error) AS status,
    t.median_ms,
    list_min(t.times_ms) AS min_ms,
    nullif(len(t.times_ms), 0) AS iterations,
    t.model_flop_per_s,
    pct_of_peak(t.model_flop_per_s, p.flop_per_s) AS mfu_pct,
    t.effective_bytes_per_s,
    t.max_abs_error,
    t.timing_method,
    t.sm_mhz,
    t.power_w,
    t.step_energy_j,
    t.energy_j,
    t.mean_power_w,
    nullif(array_to_string(t.throttled_by, ', '), '') AS throttled_by,
    k.gpu,
    k.source AS peak_source
FROM rates AS t
LEFT JOIN known AS k ON k.run_id = t.run_id
LEFT JOIN peaks AS p ON p.run_id = t.run_id AND p.dtype = t.dtype
ORDER BY t.run_id, t.task_index;
