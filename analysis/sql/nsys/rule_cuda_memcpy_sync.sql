-- Copies through calls that block the host until they are done, the longest first, as `nsys analyze -r cuda_memcpy_sync`.
-- A device-to-device copy does not block and is left out.
--
-- report_id: report
-- duration_ns: time of the copy on the GPU, ns
-- start_ns: start, ns
-- src_kind: memory read
-- dst_kind: memory written
-- bytes: bytes
-- pid: process
-- device_id: CUDA device number
-- context_id: CUDA context
-- stream_id: CUDA stream
-- api_name: function as recorded
CREATE VIEW rule_cuda_memcpy_sync AS
SELECT
    m.report_id,
    m.dur_ns AS duration_ns,
    m.start_ns,
    m.src_kind,
    m.dst_kind,
    m.bytes,
    m.pid,
    m.device AS device_id,
    m.context AS context_id,
    m.stream AS stream_id,
    c.recorded_name AS api_name
FROM nsys_memory_ops AS m
JOIN nsys_api_calls AS c USING (report_id, pid, correlation_id)
WHERE starts_with(m.operation, '[CUDA memcpy')
    AND NOT (m.src_kind = 'Device' AND m.dst_kind = 'Device')
    AND regexp_matches(c.name, '^cu(da)?Memcpy') AND NOT contains(c.name, 'Async')
ORDER BY m.report_id, duration_ns DESC, m.start_ns, stream_id;
