-- Copies by calls that block the host until they are complete, longest first, as in `nsys analyze -r
-- cuda_memcpy_sync`. Device-to-device copies do not block and are excluded.
--
-- report_id VARCHAR: report
-- duration_ns BIGINT: duration of the copy on the GPU, ns
-- start_ns BIGINT: start of the copy, ns
-- src_kind VARCHAR: kind of the source memory
-- dst_kind VARCHAR: kind of the destination memory
-- bytes BIGINT: number of bytes copied
-- pid BIGINT: process
-- device_id BIGINT: CUDA device number
-- context_id BIGINT: CUDA context
-- stream_id BIGINT: CUDA stream
-- api_name VARCHAR: function name as recorded
CREATE VIEW rule_cuda_memcpy_sync AS
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
    AND NOT (src_kind = 'Device' AND dst_kind = 'Device')
    AND regexp_matches(call, '^cu(da)?Memcpy') AND NOT contains(call, 'Async')
ORDER BY report_id, duration_ns DESC, start_ns, stream_id;
