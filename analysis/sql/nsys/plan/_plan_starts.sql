-- From which launch on ncu looks: the first of the window, or a later one of its first step if the
-- launches that come first from there on stand for clearly more time.
CREATE VIEW _plan_starts AS
WITH limits AS (
    SELECT
        report_id,
        if(any_value(steps) IS NULL, 1, ceil(max(place) FILTER (inside) / any_value(steps))) AS last_place,
        sum(dur_ns) FILTER (inside) AS all_ns
    FROM _plan_launches
    GROUP BY report_id
),
-- A launch is the first of its configuration for every start behind the one before it.
borders AS (
    SELECT report_id, earlier_place + 1 AS start_place, gain_ns AS change_ns
    FROM _plan_launches
    WHERE inside
    UNION ALL
    SELECT report_id, place + 1, -gain_ns
    FROM _plan_launches
    WHERE inside
),
changes AS (
    SELECT report_id, start_place, sum(change_ns)::BIGINT AS change_ns
    FROM borders
    GROUP BY report_id, start_place
),
gains AS (
    SELECT
        report_id,
        start_place,
        sum(change_ns) OVER (PARTITION BY report_id ORDER BY start_place ROWS UNBOUNDED PRECEDING) AS gain_ns
    FROM changes
),
possible AS (
    SELECT g.*, l.all_ns, max(g.gain_ns) OVER (PARTITION BY g.report_id) AS most_ns
    FROM gains AS g
    JOIN limits AS l ON l.report_id = g.report_id AND g.start_place <= l.last_place
)
SELECT report_id, min(start_place) AS start_place
FROM possible
WHERE 100.0 * (most_ns - gain_ns) <= threshold('plan.start_gain_pct') * all_ns
GROUP BY report_id;
