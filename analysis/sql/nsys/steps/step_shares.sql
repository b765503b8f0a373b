-- Time budget of each step as one row per step, with the percentage of the step in each category of
-- gpu_time_budget.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- step VARCHAR: name of the step
-- step_index BIGINT: number of the step within the process on this GPU, from 1
-- phase VARCHAR: start-up, warm-up, steady, other or shutdown, as in steps
-- step_ns BIGINT: duration of the step, ns
-- compute_pct DOUBLE: compute, % of the step
-- communication_pct DOUBLE: exposed communication, % of the step
-- migration_pct DOUBLE: migration of unified memory, % of the step
-- transfer_pct DOUBLE: copies and memsets without concurrent kernels, % of the step
-- other_process_pct DOUBLE: time during which only other processes work on the GPU, % of the step; NULL
--   unless several processes share the GPU
-- sync_pct DOUBLE: GPU idle time because the host waited for the GPU, % of the step
-- launch_gap_pct DOUBLE: GPU idle time while the host was between launches, % of the step
-- launch_api_pct DOUBLE: GPU idle time during launching calls, % of the step
-- queued_pct DOUBLE: GPU idle time after launching calls, before the operation started, % of the step
-- kernel_gap_pct DOUBLE: GPU idle time although the next operation had already been launched, % of the step
-- device_wait_pct DOUBLE: GPU idle time while issued work waits for something other than the host, % of the
--   step
-- building_pct DOUBLE: GPU idle time while the host builds kernels or CUDA graphs, % of the step
-- no_work_pct DOUBLE: GPU idle time while the program waits for requests, % of the step
-- loading_pct DOUBLE: GPU idle time while the driver loaded code, % of the step
-- host_pct DOUBLE: GPU idle time while the host launched nothing, % of the step
-- profiler_overhead_pct DOUBLE: GPU idle time caused by profiler overhead, % of the step
-- edge_pct DOUBLE: time before the first and after the last operation, % of the step
-- unattributed_pct DOUBLE: GPU idle time before operations without a recorded launching call, % of the step
CREATE VIEW step_shares AS
SELECT
    report_id,
    device,
    process_id,
    step,
    step_index,
    any_value(phase) AS phase,
    any_value(step_ns) AS step_ns,
    any_value(share_pct) FILTER (category = 'compute') AS compute_pct,
    any_value(share_pct) FILTER (category = 'communication') AS communication_pct,
    any_value(share_pct) FILTER (category = 'migration') AS migration_pct,
    any_value(share_pct) FILTER (category = 'transfer') AS transfer_pct,
    any_value(share_pct) FILTER (category = 'other_process') AS other_process_pct,
    any_value(share_pct) FILTER (category = 'sync') AS sync_pct,
    any_value(share_pct) FILTER (category = 'launch_gap') AS launch_gap_pct,
    any_value(share_pct) FILTER (category = 'launch_api') AS launch_api_pct,
    any_value(share_pct) FILTER (category = 'queued') AS queued_pct,
    any_value(share_pct) FILTER (category = 'kernel_gap') AS kernel_gap_pct,
    any_value(share_pct) FILTER (category = 'device_wait') AS device_wait_pct,
    any_value(share_pct) FILTER (category = 'building') AS building_pct,
    any_value(share_pct) FILTER (category = 'no_work') AS no_work_pct,
    any_value(share_pct) FILTER (category = 'loading') AS loading_pct,
    any_value(share_pct) FILTER (category = 'host') AS host_pct,
    any_value(share_pct) FILTER (category = 'profiler_overhead') AS profiler_overhead_pct,
    any_value(share_pct) FILTER (category = 'edge') AS edge_pct,
    any_value(share_pct) FILTER (category = 'unattributed') AS unattributed_pct
FROM step_budget
WHERE step_index IS NOT NULL
GROUP BY report_id, device, process_id, step, step_index
ORDER BY report_id, device, process_id, step_index;
