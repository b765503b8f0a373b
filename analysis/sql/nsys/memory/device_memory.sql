-- Memory in use on each GPU over time, one row per change.  nsys records CUDA's allocations
-- (--cuda-memory-usage=true), torch.profiler those of PyTorch (profile_memory=True).
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- kind VARCHAR: device, array, managed or static (variables of modules) for CUDA's allocations, tensor for
--   PyTorch's
-- time_ns BIGINT: time of the change on the host, ns; 0 for what was there when nsys began to record
-- bytes BIGINT: bytes of that kind that the process then has in use
-- total_bytes BIGINT: bytes in use on the GPU, of all kinds and processes
-- reserved_bytes BIGINT: bytes held of the GPU for it: with CUDA's memory pools and PyTorch's allocator more
--   than is in use; NULL if not recorded
CREATE VIEW device_memory AS
WITH moments AS (
    SELECT
        report_id, device, process_id, kind, time_ns,
        sum(delta)::BIGINT AS delta,
        sum(reserved_delta)::BIGINT AS reserved_delta
    FROM _memory_changes
    GROUP BY report_id, device, process_id, kind, time_ns
)
SELECT
    report_id,
    device,
    process_id,
    kind,
    time_ns,
    (sum(delta) OVER (PARTITION BY report_id, device, process_id, kind ORDER BY time_ns))::BIGINT AS bytes,
    -- Changes at the same time are one: the order of rows has no say.
    (sum(delta) OVER (PARTITION BY report_id, device ORDER BY time_ns))::BIGINT AS total_bytes,
    (sum(reserved_delta) OVER (PARTITION BY report_id, device ORDER BY time_ns))::BIGINT AS reserved_bytes
FROM moments
ORDER BY report_id, device, time_ns, process_id, kind;
