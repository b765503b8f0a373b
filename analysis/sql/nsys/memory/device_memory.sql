-- Memory in use on each GPU over time, one row per change. nsys records CUDA allocations
-- (--cuda-memory-usage=true), and torch.profiler records PyTorch allocations (profile_memory=True).
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- kind VARCHAR: device, array, managed or static (module variables) for CUDA allocations, tensor for PyTorch
--   allocations
-- time_ns BIGINT: host time of the change, ns; 0 for memory that was already in use when nsys began to
--   record
-- bytes BIGINT: memory of this kind that the process uses after the change, bytes
-- total_bytes BIGINT: memory in use on the GPU after the change, summed over all kinds and processes,
--   bytes
-- reserved_bytes BIGINT: memory reserved on the GPU, bytes; CUDA memory pools and PyTorch's allocator
--   reserve more than is in use; NULL if not recorded
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
    -- Changes at the same time are combined, so that the order of rows does not matter.
    (sum(delta) OVER (PARTITION BY report_id, device ORDER BY time_ns))::BIGINT AS total_bytes,
    (sum(reserved_delta) OVER (PARTITION BY report_id, device ORDER BY time_ns))::BIGINT AS reserved_bytes
FROM moments
ORDER BY report_id, device, time_ns, process_id, kind;
