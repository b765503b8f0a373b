-- Memsets of pinned or managed memory through calls that block the host, the longest first, as
-- `nsys analyze -r cuda_memset_sync`.  Joined on process and correlation id.
--
-- report_id: report
-- duration_ns: time of the memset on the GPU, ns
-- start_ns: start, ns
-- memory_kind: memory set
-- bytes: bytes
-- pid: process
-- device_id: CUDA device number
-- context_id: CUDA context
-- stream_id: CUDA stream
-- api_name: function as recorded
CREATE VIEW rule_cuda_memset_sync AS
SELECT
    m.report_id,
    m.dur_ns AS duration_ns,
    m.start_ns,
    m.dst_kind AS memory_kind,
    m.bytes,
    m.pid,
    m.device AS device_id,
    m.context AS context_id,
    m.stream AS stream_id,
    c.recorded_name AS api_name
FROM nsys_memory_ops AS m
JOIN nsys_api_calls AS c USING (report_id, pid, correlation_id)
WHERE m.operation = '[CUDA memset]'
    AND m.dst_kind IN ('Pinned', 'Managed')
    AND regexp_matches(c.name, '^cu(da)?Memset') AND NOT contains(c.name, 'Async')
ORDER BY m.report_id, duration_ns DESC, m.start_ns, stream_id;
