-- The time budget of each step, one row per step: the share of each category of gpu_time_budget.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- step VARCHAR: name of the step
-- step_index BIGINT: step number of the process on the device, from 1
-- phase VARCHAR: start-up, warm-up, steady, other or shutdown, as in steps
-- step_ns BIGINT: duration, ns
-- compute_pct DOUBLE: compute, %
-- communication_pct DOUBLE: communication that compute does not cover, %
-- transfer_pct DOUBLE: copies and memsets that no kernel covers, %
-- other_process_pct DOUBLE: only other processes on the GPU work, %; NULL unless several share it
-- sync_pct DOUBLE: idle because the host waited for the GPU, %
-- launch_gap_pct DOUBLE: idle between launches, %
-- launch_api_pct DOUBLE: idle during launching calls, %
-- queued_pct DOUBLE: idle after launching calls, %
-- kernel_gap_pct DOUBLE: idle although the next operation had been launched before, %
-- loading_pct DOUBLE: idle because the driver loaded code, %
-- host_pct DOUBLE: idle because the host launched nothing, %
-- profiler_overhead_pct DOUBLE: idle because of the profiler, %
-- edge_pct DOUBLE: before the first and after the last operation, %
-- unattributed_pct DOUBLE: idle before operations without a recorded call, %
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
    any_value(share_pct) FILTER (category = 'transfer') AS transfer_pct,
    any_value(share_pct) FILTER (category = 'other_process') AS other_process_pct,
    any_value(share_pct) FILTER (category = 'sync') AS sync_pct,
    any_value(share_pct) FILTER (category = 'launch_gap') AS launch_gap_pct,
    any_value(share_pct) FILTER (category = 'launch_api') AS launch_api_pct,
    any_value(share_pct) FILTER (category = 'queued') AS queued_pct,
    any_value(share_pct) FILTER (category = 'kernel_gap') AS kernel_gap_pct,
    any_value(share_pct) FILTER (category = 'loading') AS loading_pct,
    any_value(share_pct) FILTER (category = 'host') AS host_pct,
    any_value(share_pct) FILTER (category = 'profiler_overhead') AS profiler_overhead_pct,
    any_value(share_pct) FILTER (category = 'edge') AS edge_pct,
    any_value(share_pct) FILTER (category = 'unattributed') AS unattributed_pct
FROM step_budget
WHERE step_index IS NOT NULL
GROUP BY report_id, device, process_id, step, step_index
ORDER BY report_id, device, process_id, step_index;
