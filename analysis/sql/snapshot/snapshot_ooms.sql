-- Allocations that failed, and why. Before an allocation fails, PyTorch gives unused segments back to CUDA,
-- so free memory that remains reserved lies between tensors.
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- event BIGINT: event of the failure
-- time_ns BIGINT: time since the first event, ns
-- bytes BIGINT: bytes that were asked for
-- device_free_bytes BIGINT: memory that CUDA still had, bytes
-- allocated_bytes BIGINT: memory that tensors used, bytes
-- reserved_bytes BIGINT: memory that the allocator had reserved, bytes
-- between_bytes BIGINT: reserved memory that no tensor used, bytes
-- cause VARCHAR: fragmentation (the free reserved memory would have been enough in one piece), limit (CUDA
--   had enough memory, so that a limit of the process applied), or full
-- file VARCHAR: file of the innermost frame of the program itself; NULL if the stack has none
-- line BIGINT: line of this frame
-- function VARCHAR: function of this frame
-- largest_category VARCHAR: what most memory was for at that time, as in snapshot_owners
-- largest_bytes BIGINT: memory of this category, bytes
CREATE VIEW snapshot_ooms AS
WITH failed AS (
    SELECT e.*, s.file, s.line, s.function
    FROM snapshot_events AS e
    LEFT JOIN snapshot_stacks AS s ON s.report_id = e.report_id AND s.stack_id = e.stack_id
    WHERE e.action = 'oom'
),
categories AS (
    SELECT f.report_id, f.event, l.category, sum(l.bytes)::BIGINT AS bytes
    FROM failed AS f
    JOIN _snapshot_lives AS l
        ON l.report_id = f.report_id AND l.device = f.device
        AND coalesce(l.start_event, -1) <= f.event AND (l.end_event IS NULL OR l.end_event > f.event)
    GROUP BY f.report_id, f.event, l.category
),
largest AS (
    SELECT report_id, event, arg_max(category, (bytes, category)) AS category, max(bytes) AS bytes
    FROM categories
    GROUP BY report_id, event
)
SELECT
    f.report_id,
    f.device,
    f.event,
    f.time_ns,
    f.bytes,
    f.device_free_bytes,
    m.bytes AS allocated_bytes,
    m.reserved_bytes,
    m.reserved_bytes - m.bytes AS between_bytes,
    CASE
        WHEN f.device_free_bytes >= f.bytes THEN 'limit'
        WHEN m.reserved_bytes - m.bytes >= f.bytes THEN 'fragmentation'
        ELSE 'full'
    END AS cause,
    f.file,
    f.line,
    f.function,
    l.category AS largest_category,
    l.bytes AS largest_bytes
FROM failed AS f
ASOF LEFT JOIN _snapshot_moments AS m
    ON m.report_id = f.report_id AND m.device = f.device AND m.event <= f.event
LEFT JOIN largest AS l ON l.report_id = f.report_id AND l.event = f.event
ORDER BY f.report_id, f.device, f.event;
