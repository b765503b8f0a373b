-- Memsets of pinned or managed memory whose API call blocks the host, longest first, as in `nsys analyze
-- -r cuda_memset_sync`. Calls and memsets are matched by process and correlation id.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration of the memset on the GPU, ns
-- start_ns BIGINT: start of the memset, ns
-- memory_kind VARCHAR: kind of memory that is set
-- bytes BIGINT: number of bytes set
-- pid BIGINT: process id
-- device_id BIGINT: CUDA device index within the process
-- context_id BIGINT: CUDA context id
-- stream_id BIGINT: CUDA stream id
-- api_name VARCHAR: function name as recorded
CREATE VIEW rule_cuda_memset_sync AS
SELECT
    report_id,
    duration_ns,
    start_ns,
    dst_kind AS memory_kind,
    bytes,
    pid,
    device_id,
    context_id,
    stream_id,
    api_name
FROM _called_memory_ops
WHERE operation = '[CUDA memset]'
    AND dst_kind IN ('Pinned', 'Managed')
    AND regexp_matches(call, '^cu(da)?Memset') AND NOT contains(call, 'Async')
ORDER BY report_id, duration_ns DESC, start_ns, stream_id;
