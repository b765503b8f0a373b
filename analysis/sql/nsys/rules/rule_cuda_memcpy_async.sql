-- Asynchronous copies from or to pageable memory, longest first, as in `nsys analyze -r
-- cuda_memcpy_async`. Such copies are staged and therefore not asynchronous. Calls and copies are matched
-- by process and correlation id (nsys ignores the process). Copies by driver API calls, which nsys does
-- not match, are included.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration of the copy on the GPU, ns
-- start_ns BIGINT: start of the copy, ns
-- src_kind VARCHAR: kind of source memory
-- dst_kind VARCHAR: kind of destination memory
-- bytes BIGINT: number of bytes copied
-- pid BIGINT: process id
-- device_id BIGINT: CUDA device index within the process
-- context_id BIGINT: CUDA context id
-- stream_id BIGINT: CUDA stream id
-- api_name VARCHAR: function name as recorded
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
