-- Calls that make the host wait for the GPU, longest first, as in `nsys analyze -r cuda_api_sync`. nsys only
-- lists cudaDeviceSynchronize and cudaStreamSynchronize; this view adds driver API calls, event
-- synchronization and blocking copies.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration of the call, ns
-- start_ns BIGINT: start of the call, ns
-- pid BIGINT: process id
-- tid BIGINT: thread id
-- api_name VARCHAR: function name as recorded
-- nsys_lists BOOLEAN: whether nsys's own rule lists the call
CREATE VIEW rule_cuda_api_sync AS
SELECT
    report_id,
    dur_ns AS duration_ns,
    start_ns,
    pid,
    tid,
    recorded_name AS api_name,
    regexp_matches(recorded_name, '^cuda(Device|Stream)Synchronize') AS nsys_lists
FROM _sync_calls
ORDER BY report_id, duration_ns DESC, start_ns, tid;
