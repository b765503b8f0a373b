-- Peak of the memory that tensors use according to a memory snapshot of PyTorch, and how the allocator had
-- divided its memory at the time of the snapshot.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- peak_bytes BIGINT: peak of the memory that tensors asked for, bytes
-- peak_event BIGINT: event at which the peak was first reached; -1 is the state before the first event
-- peak_ns BIGINT: time of the peak since the first event, ns; NULL if the snapshot has no times
-- reserved_at_peak_bytes BIGINT: memory that the allocator had reserved at the peak, bytes
-- reserved_bytes BIGINT: peak of the memory that the allocator had reserved, bytes
-- end_bytes BIGINT: memory that tensors use at the end, bytes
-- end_reserved_bytes BIGINT: memory that the allocator has reserved at the end, bytes
-- free_bytes BIGINT: reserved memory at the end that no tensor uses, bytes
-- largest_free_bytes BIGINT: largest block of it, bytes
-- split_bytes BIGINT: part of it that lies in segments that tensors also use, so that it cannot be given back
--   to CUDA, bytes
-- free_blocks BIGINT: number of free blocks at the end
-- rounding_bytes BIGINT: bytes of blocks in use that no tensor asked for, because the allocator rounds up
-- before_bytes BIGINT: memory at the start that was allocated before the first event, bytes
-- events BIGINT: number of recorded events
-- expandable BIGINT: 1 if the segments can grow (expandable_segments), 0 if not; NULL if not recorded
-- memory_bytes BIGINT: memory of the GPU, bytes; NULL if the snapshot does not state it
CREATE VIEW snapshot_peak AS
WITH peaks AS (
    SELECT
        report_id,
        device,
        max(bytes) AS peak_bytes,
        arg_max(event, (bytes, -event)) AS peak_event,
        arg_max(reserved_bytes, (bytes, -event)) AS reserved_at_peak_bytes,
        max(reserved_bytes) AS reserved_bytes,
        arg_max(bytes, event) AS end_bytes,
        arg_max(reserved_bytes, event) AS end_reserved_bytes,
        coalesce(max(bytes) FILTER (event = -1), 0) AS before_bytes
    FROM _snapshot_moments
    GROUP BY report_id, device
),
used AS (
    SELECT report_id, segment, bool_or(state != 'inactive') AS used
    FROM snapshot_blocks
    GROUP BY report_id, segment
),
blocks AS (
    SELECT
        s.report_id,
        s.device,
        coalesce(sum(b.bytes) FILTER (b.state = 'inactive'), 0)::BIGINT AS free_bytes,
        coalesce(max(b.bytes) FILTER (b.state = 'inactive'), 0) AS largest_free_bytes,
        coalesce(sum(b.bytes) FILTER (b.state = 'inactive' AND u.used), 0)::BIGINT AS split_bytes,
        count(*) FILTER (b.state = 'inactive') AS free_blocks,
        coalesce(sum(b.bytes - b.requested_bytes) FILTER (b.state = 'active_allocated'), 0)::BIGINT
            AS rounding_bytes
    FROM snapshot_segments AS s
    JOIN snapshot_blocks AS b ON b.report_id = s.report_id AND b.segment = s.segment
    JOIN used AS u ON u.report_id = s.report_id AND u.segment = s.segment
    GROUP BY s.report_id, s.device
),
growing AS (
    SELECT report_id, device, max(expandable) AS expandable
    FROM snapshot_segments
    GROUP BY report_id, device
),
counted AS (
    SELECT report_id, device, count(*) AS events
    FROM snapshot_events
    GROUP BY report_id, device
)
SELECT
    p.report_id,
    p.device,
    p.peak_bytes,
    p.peak_event,
    e.time_ns AS peak_ns,
    p.reserved_at_peak_bytes,
    p.reserved_bytes,
    p.end_bytes,
    p.end_reserved_bytes,
    coalesce(b.free_bytes, 0) AS free_bytes,
    coalesce(b.largest_free_bytes, 0) AS largest_free_bytes,
    coalesce(b.split_bytes, 0) AS split_bytes,
    coalesce(b.free_blocks, 0) AS free_blocks,
    coalesce(b.rounding_bytes, 0) AS rounding_bytes,
    p.before_bytes,
    coalesce(c.events, 0) AS events,
    g.expandable,
    d.memory_bytes
FROM peaks AS p
LEFT JOIN snapshot_events AS e ON e.report_id = p.report_id AND e.event = p.peak_event
LEFT JOIN blocks AS b ON b.report_id = p.report_id AND b.device = p.device
LEFT JOIN counted AS c ON c.report_id = p.report_id AND c.device = p.device
LEFT JOIN growing AS g ON g.report_id = p.report_id AND g.device = p.device
LEFT JOIN snapshot_devices AS d ON d.report_id = p.report_id AND d.device = p.device
ORDER BY p.report_id, p.device;
