-- Ranks whose batch of sends and receives does not end because of one of them: its peer is elsewhere or
-- disagrees, or is held itself.
CREATE VIEW _hang_held AS
WITH RECURSIVE transfers AS (
    SELECT
        report_id,
        call,
        list(rank) AS ranks,
        bool_or(place != 'at') OR count(DISTINCT said) > 1 AS blocked
    FROM _hang_places
    WHERE source IS NOT NULL
    GROUP BY report_id, call
),
held AS (
    SELECT DISTINCT h.report_id, h.rank
    FROM _hang_heads AS h
    JOIN transfers AS t ON t.report_id = h.report_id AND t.call = h.call AND t.blocked
    UNION
    SELECT h.report_id, unnest(t.ranks) AS rank
    FROM held AS h
    JOIN _hang_heads AS own ON own.report_id = h.report_id AND own.rank = h.rank
    JOIN transfers AS t ON t.report_id = own.report_id AND t.call = own.call AND NOT t.blocked
)
FROM held;
