-- Memsets of pinned or managed memory by calls that block the host, longest first, as in `nsys
-- analyze -r cuda_memset_sync`.  Joined on process and correlation id.
--
-- report_id: report
-- duration_ns: duration of the memset on the GPU, ns
-- start_ns: start, ns
-- memory_kind: kind of memory
-- bytes: bytes
-- pid: process
-- device_id: CUDA device number
-- context_id: CUDA context
-- stream_id: CUDA stream
-- api_name: function as recorded
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
