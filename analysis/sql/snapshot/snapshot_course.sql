-- Memory over time according to a memory snapshot of PyTorch, divided into 240 intervals with the same number
-- of events: by what it is for, and reserved memory.
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- category VARCHAR: as in snapshot_owners; in use is their sum, held is what the allocator had reserved
-- max_bytes BIGINT: peak of the category, bytes
-- at_peak_bytes BIGINT: memory of the category at the peak of all memory in use, bytes
-- end_bytes BIGINT: memory of the category at the end, bytes
-- parts_bytes BIGINT[]: memory of the category at the moment of each interval at which most memory is in use,
--   bytes
CREATE VIEW snapshot_course AS
WITH spans AS (
    SELECT report_id, device, min(event) AS first_event, max(event) AS last_event
    FROM snapshot_events
    GROUP BY report_id, device
),
-- The state before the first event is in an interval of its own, which precedes all.
placed AS (
    SELECT
        m.report_id, m.device, m.event, m.bytes,
        if(
            m.event < 0, -1,
            (m.event - s.first_event) * 240 // (s.last_event - s.first_event + 1)
        )::BIGINT AS part
    FROM _snapshot_moments AS m
    LEFT JOIN spans AS s ON s.report_id = m.report_id AND s.device = m.device
),
filled AS (
    SELECT
        report_id, device, part,
        max(bytes) AS top_bytes,
        arg_max(event, (bytes, -event)) AS top_event,
        arg_max(bytes, event) AS last_bytes,
        max(event) AS last_event
    FROM placed
    GROUP BY report_id, device, part
),
grid AS (
    SELECT report_id, device, unnest(range(240)) AS part
    FROM snapshot_peak
),
-- What was in use at the end of an interval is in use at the start of the next.
tops AS (
    SELECT
        g.report_id, g.device, g.part,
        if(f.top_bytes IS NULL OR e.last_bytes > f.top_bytes, e.last_event, f.top_event) AS event
    FROM grid AS g
    LEFT JOIN filled AS f ON f.report_id = g.report_id AND f.device = g.device AND f.part = g.part
    ASOF LEFT JOIN filled AS e ON e.report_id = g.report_id AND e.device = g.device AND e.part < g.part
),
courses AS (
    SELECT
        report_id, device, category, event,
        (sum(sum(delta)) OVER (PARTITION BY report_id, device, category ORDER BY event))::BIGINT AS bytes
    FROM _snapshot_changes
    GROUP BY report_id, device, category, event
    UNION ALL
    SELECT report_id, device, 'in use', event, bytes
    FROM _snapshot_moments
    UNION ALL
    SELECT report_id, device, 'held', event, reserved_bytes
    FROM _snapshot_moments
),
extremes AS (
    SELECT report_id, device, category, max(bytes) AS max_bytes, arg_max(bytes, event) AS end_bytes
    FROM courses
    GROUP BY report_id, device, category
),
-- The last top is the peak of all, as interval 240.
asked AS (
    SELECT e.*, t.part, t.event
    FROM extremes AS e
    JOIN tops AS t ON t.report_id = e.report_id AND t.device = e.device
    UNION ALL
    SELECT e.*, 240, p.peak_event
    FROM extremes AS e
    JOIN snapshot_peak AS p ON p.report_id = e.report_id AND p.device = e.device
),
answered AS (
    SELECT a.*, coalesce(c.bytes, 0) AS bytes
    FROM asked AS a
    ASOF LEFT JOIN courses AS c
        ON c.report_id = a.report_id AND c.device = a.device AND c.category = a.category
        AND c.event <= a.event
)
SELECT
    report_id,
    device,
    category,
    max_bytes,
    any_value(bytes) FILTER (part = 240) AS at_peak_bytes,
    end_bytes,
    list(bytes ORDER BY part) FILTER (part < 240) AS parts_bytes
FROM answered
GROUP BY report_id, device, category, max_bytes, end_bytes
ORDER BY report_id, device, category NOT IN ('in use', 'held'), max_bytes DESC, category;
