-- Memory of a program after each event of a memory snapshot: allocated by category, and reserved. Bytes are
-- those that were asked for. Moment -1 is the state before the first event. `later_bytes` is the state that
-- optimizers allocate after the moment and keep: later steps hold it all the time.
-- @materialize
CREATE VIEW _snapshot_moments AS
WITH segment_changes AS (
    SELECT report_id, device, event, if(action IN ('segment_alloc', 'segment_map'), bytes, -bytes) AS delta
    FROM snapshot_events
    WHERE action IN ('segment_alloc', 'segment_map', 'segment_free', 'segment_unmap')
),
changes AS (
    SELECT report_id, device, event, scales, category, delta, kept_delta, 0 AS reserved_delta
    FROM _snapshot_changes
    UNION ALL
    SELECT report_id, device, event, false, NULL, 0, 0, delta
    FROM segment_changes
    UNION ALL
    SELECT report_id, device, -1, false, NULL, 0, 0, bytes
    FROM snapshot_segments
    UNION ALL
    -- The segments at the end, less what the events added, are the segments at the start.
    SELECT report_id, device, -1, false, NULL, 0, 0, -delta
    FROM segment_changes
),
moments AS (
    SELECT
        report_id,
        device,
        event,
        sum(delta)::BIGINT AS delta,
        coalesce(sum(delta) FILTER (scales), 0)::BIGINT AS batch_delta,
        coalesce(sum(delta) FILTER (category IN ('unknown', 'earlier')), 0)::BIGINT AS unknown_delta,
        sum(kept_delta)::BIGINT AS kept_delta,
        sum(reserved_delta)::BIGINT AS reserved_delta
    FROM changes
    GROUP BY report_id, device, event
)
SELECT
    report_id,
    device,
    event,
    (sum(delta) OVER course)::BIGINT AS bytes,
    (sum(batch_delta) OVER course)::BIGINT AS batch_bytes,
    (sum(unknown_delta) OVER course)::BIGINT AS unknown_bytes,
    (
        sum(kept_delta) OVER (PARTITION BY report_id, device) - sum(kept_delta) OVER course
    )::BIGINT AS later_bytes,
    (sum(reserved_delta) OVER course)::BIGINT AS reserved_bytes
FROM moments
WINDOW course AS (PARTITION BY report_id, device ORDER BY event ROWS UNBOUNDED PRECEDING);
