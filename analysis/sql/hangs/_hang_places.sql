-- Where each rank stands of a call in which some rank waits: at (it waits there), later (it enqueued the call
-- behind another unfinished one), never (it did not enqueue the call), finished, or no dump.  A dump of
-- active calls alone does not show which calls are finished: without a call of the group, it is no dump.
-- @materialize
CREATE VIEW _hang_places AS
WITH calls AS (
    SELECT
        report_id,
        call,
        group_id,
        p2p,
        source,
        target,
        number,
        min(sequence) AS sequence
    FROM _hang_heads
    GROUP BY report_id, call, group_id, p2p, source, target, number
),
members AS (
    SELECT c.*, m.rank
    FROM calls AS c
    JOIN hang_members AS m ON m.report_id = c.report_id AND m.group_id = c.group_id
    WHERE c.p2p = 0
    UNION ALL
    SELECT *, unnest([source, target]) AS rank
    FROM calls
    WHERE source IS NOT NULL
    UNION ALL
    SELECT c.*, h.rank
    FROM calls AS c
    JOIN _hang_heads AS h ON h.report_id = c.report_id AND h.call = c.call
    WHERE c.p2p = 1 AND c.source IS NULL
),
active AS (
    SELECT d.report_id, d.rank
    FROM hang_dumps AS d
    ANTI JOIN (FROM _hang_units WHERE finished) AS u ON u.report_id = d.report_id AND u.rank = d.rank
    WHERE coalesce(d.first_record, 1) > 0 AND d.enqueued > 0
),
reached AS (
    SELECT report_id, rank, group_id, max(sequence) AS sequence
    FROM _hang_units
    WHERE p2p = 0
    GROUP BY report_id, rank, group_id
)
SELECT
    m.report_id,
    m.call,
    m.group_id,
    m.p2p,
    m.sequence,
    m.source,
    m.target,
    m.rank,
    CASE
        WHEN h.rank IS NOT NULL THEN 'at'
        WHEN d.rank IS NULL THEN 'no dump'
        WHEN coalesce(u.finished, e.finished) THEN 'finished'
        WHEN u.rank IS NOT NULL OR e.rank IS NOT NULL THEN 'later'
        WHEN m.p2p = 0 AND r.sequence >= m.sequence THEN 'finished'
        WHEN r.sequence IS NULL AND a.rank IS NOT NULL THEN 'no dump'
        ELSE 'never'
    END AS place,
    coalesce(u.said, e.said) AS said,
    h.started,
    d.starts = 1 AS has_starts
FROM members AS m
LEFT JOIN _hang_heads AS h ON h.report_id = m.report_id AND h.rank = m.rank AND h.call = m.call
LEFT JOIN hang_dumps AS d ON d.report_id = m.report_id AND d.rank = m.rank
LEFT JOIN _hang_units AS u
    ON m.p2p = 0 AND u.p2p = 0 AND u.report_id = m.report_id AND u.rank = m.rank AND u.group_id = m.group_id
        AND u.sequence = m.sequence
LEFT JOIN _hang_ends AS e
    ON e.report_id = m.report_id AND e.rank = m.rank AND e.group_id = m.group_id AND e.source = m.source
        AND e.target = m.target AND e.number = m.number
LEFT JOIN active AS a ON a.report_id = m.report_id AND a.rank = m.rank
LEFT JOIN reached AS r ON r.report_id = m.report_id AND r.rank = m.rank AND r.group_id = m.group_id;
