-- The first unfinished call of each rank, or the calls of the first unfinished batch.  Ranks execute calls in
-- the order in which they enqueued them.  `call` is the same on all ranks that take part.
-- @materialize
CREATE VIEW _hang_heads AS
WITH heads AS (
    FROM _hang_units
    WHERE NOT finished
    QUALIFY row_number() OVER (PARTITION BY report_id, rank ORDER BY record_id) = 1
)
SELECT
    h.*,
    e.source,
    e.target,
    e.number,
    CASE
        WHEN h.p2p = 0 THEN concat(h.group_id, '#', h.sequence)
        WHEN e.rank IS NULL THEN concat(h.group_id, ':', h.rank, '#', h.sequence)
        ELSE concat(h.group_id, ':', e.source, '>', e.target, '#', e.number)
    END AS call
FROM heads AS h
LEFT JOIN _hang_ends AS e
    ON h.p2p = 1 AND e.report_id = h.report_id AND e.rank = h.rank AND e.group_id = h.group_id
        AND e.sequence = h.sequence;
