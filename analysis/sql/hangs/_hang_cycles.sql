-- Calls that wait for each other: a rank that has not reached one of them waits in another.  `cycle` is the
-- first call of those that wait for each other.
-- @materialize
CREATE VIEW _hang_cycles AS
WITH RECURSIVE edges AS (
    SELECT DISTINCT p.report_id, p.call, h.call AS next
    FROM _hang_places AS p
    JOIN _hang_heads AS h ON h.report_id = p.report_id AND h.rank = p.rank
    WHERE p.place IN ('later', 'never') AND h.call != p.call
),
inner_edges AS (
    SELECT *
    FROM edges AS e
    SEMI JOIN edges AS onward ON onward.report_id = e.report_id AND onward.call = e.next
    SEMI JOIN edges AS before ON before.report_id = e.report_id AND before.next = e.call
),
reached AS (
    SELECT * FROM inner_edges
    UNION
    SELECT r.report_id, r.call, e.next
    FROM reached AS r
    JOIN inner_edges AS e ON e.report_id = r.report_id AND e.call = r.next
)
SELECT a.report_id, a.call, min(a.next) AS cycle
FROM reached AS a
JOIN reached AS b ON b.report_id = a.report_id AND b.call = a.next AND b.next = a.call
GROUP BY a.report_id, a.call;
