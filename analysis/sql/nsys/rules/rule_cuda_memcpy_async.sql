-- Asynchronous copies from or to pageable memory, which are staged and so not asynchronous, longest
-- first, as in `nsys analyze -r cuda_memcpy_async`.  Joined on process and correlation id (nsys
-- ignores the process), and including driver API calls, which nsys does not match.
--
-- report_id: report
-- duration_ns: duration of the copy on the GPU, ns
-- start_ns: start, ns
-- src_kind: kind of the source memory
-- dst_kind: kind of the destination memory
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
