-- Asynchronous copies from or to pageable memory, which are staged and so are not asynchronous, the
-- longest first, as `nsys analyze -r cuda_memcpy_async`.  Joined on process and correlation id,
-- where nsys leaves the process out, and with the driver's calls, which nsys does not match.
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
CREATE VIEW rule_cuda_memcpy_async AS
SELECT
    report_id,
    duration_ns,
    start_ns,
    src_kind,
    dst_kind,
    bytes,
    pid,
    device_id,
    context_id,
    stream_id,
    api_name
FROM _called_memory_ops
WHERE starts_with(operation, '[CUDA memcpy')
    AND (src_kind = 'Pageable' OR dst_kind = 'Pageable')
    AND regexp_matches(call, '^cu(da)?Memcpy.*Async')
ORDER BY report_id, duration_ns DESC, start_ns, stream_id;
