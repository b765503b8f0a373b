-- Time budget of each step in one row per step: the share of each category of gpu_time_budget.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- step VARCHAR: name of the step
-- step_index BIGINT: step number of the process on the device, from 1
-- phase VARCHAR: start-up, warm-up, steady, other or shutdown, as in steps
-- step_ns BIGINT: duration of the step, ns
-- compute_pct DOUBLE: share of compute, %
-- communication_pct DOUBLE: share of communication that compute does not overlap, %
-- transfer_pct DOUBLE: share of copies and memsets that no kernel overlaps, %
-- other_process_pct DOUBLE: share of time in which only other processes work on the GPU, %; NULL unless
--   several processes share it
-- sync_pct DOUBLE: share of idle time because the host waited for the GPU, %
-- launch_gap_pct DOUBLE: share of idle time between launches, %
-- launch_api_pct DOUBLE: share of idle time during launching calls, %
-- queued_pct DOUBLE: share of idle time after launching calls, %
-- kernel_gap_pct DOUBLE: share of idle time although the next operation had already been launched, %
-- loading_pct DOUBLE: share of idle time because the driver loaded code, %
-- host_pct DOUBLE: share of idle time because the host launched nothing, %
-- profiler_overhead_pct DOUBLE: share of idle time because of the profiler, %
-- edge_pct DOUBLE: share of time before the first and after the last operation, %
-- unattributed_pct DOUBLE: share of idle time before operations without a recorded call, %
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
