-- Whether a larger batch fits, from a memory snapshot. Activations, and what forward and backward passes
-- hold, scale with the batch, and so does temporary memory outside the optimizer; parameters, gradients and
-- states of optimizers do not. State that an optimizer allocates in the snapshot is held throughout each
-- later step. Memory of unknown use is taken as constant, and nothing is lost to fragmentation.
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- peak_bytes BIGINT: peak of the memory that tensors use, bytes
-- later_peak_bytes BIGINT: peak of the same step with all state that the optimizer allocated in the snapshot,
--   bytes
-- scaling_bytes BIGINT: largest memory that scales with the batch, bytes
-- unknown_bytes BIGINT: memory of unknown or earlier use at the peak, bytes
-- double_bytes BIGINT: peak of a later step with a batch of twice the size, bytes, under this assumption
-- capacity_bytes BIGINT: memory that tensors can use, bytes: the memory of the GPU, or what the allocator had
--   reserved and CUDA still had when an allocation failed; NULL if neither is recorded
-- capacity_source VARCHAR: gpu or oom
-- factor DOUBLE: largest batch that fits, as a multiple of this one; NULL without a capacity, below it, or if
--   nothing scales
-- fits_double VARCHAR: yes or no; NULL without a capacity
CREATE VIEW snapshot_batch AS
WITH failed AS (
    SELECT report_id, device, arg_max(reserved_bytes + device_free_bytes, event) AS bytes
    FROM snapshot_ooms
    WHERE device_free_bytes IS NOT NULL
    GROUP BY report_id, device
),
capacities AS (
    SELECT
        p.report_id,
        p.device,
        p.peak_bytes,
        p.peak_event,
        coalesce(p.memory_bytes, f.bytes) AS capacity_bytes,
        CASE WHEN p.memory_bytes IS NOT NULL THEN 'gpu' WHEN f.bytes IS NOT NULL THEN 'oom' END
            AS capacity_source
    FROM snapshot_peak AS p
    LEFT JOIN failed AS f ON f.report_id = p.report_id AND f.device = p.device
),
scaled AS (
    SELECT
        m.report_id,
        m.device,
        max(m.batch_bytes) AS scaling_bytes,
        max(m.unknown_bytes) FILTER (m.event = c.peak_event) AS unknown_bytes,
        max(m.bytes + m.later_bytes) AS later_peak_bytes,
        max(m.bytes + m.later_bytes + m.batch_bytes) AS double_bytes,
        min(
            (c.capacity_bytes - (m.bytes + m.later_bytes - m.batch_bytes)) / nullif(m.batch_bytes, 0)
        ) AS factor
    FROM _snapshot_moments AS m
    JOIN capacities AS c ON c.report_id = m.report_id AND c.device = m.device
    GROUP BY m.report_id, m.device
)
SELECT
    c.report_id,
    c.device,
    c.peak_bytes,
    s.later_peak_bytes,
    s.scaling_bytes,
    s.unknown_bytes,
    s.double_bytes,
    c.capacity_bytes,
    c.capacity_source,
    CASE WHEN s.later_peak_bytes <= c.capacity_bytes THEN s.factor END AS factor,
    if(c.capacity_bytes IS NULL, NULL, if(s.double_bytes <= c.capacity_bytes, 'yes', 'no')) AS fits_double
FROM capacities AS c
JOIN scaled AS s ON s.report_id = c.report_id AND s.device = c.device
ORDER BY c.report_id, c.device;
