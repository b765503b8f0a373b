-- Calls that make the host wait for the GPU, the longest first, as `nsys analyze -r
-- cuda_api_sync`.  nsys knows cudaDeviceSynchronize and cudaStreamSynchronize alone; here stand the
-- driver's calls, event synchronisation and blocking copies as well.
--
-- report_id: report
-- duration_ns: time that the call took, ns
-- start_ns: start, ns
-- pid: process
-- tid: thread
-- api_name: function as recorded
-- nsys_lists: whether nsys's own rule would list it
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
