-- Time between iterations of an engine with requests in progress, from when they were sent until their
-- response ended, as intervals; the iteration is the next one.
-- @materialize
CREATE VIEW _engine_between AS
WITH ordered AS (
    SELECT report_id, sent_ns, end_ns, max(end_ns) OVER (
        PARTITION BY report_id ORDER BY sent_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_ns
    FROM _engine_requests
    WHERE end_ns > sent_ns
),
islands AS (
    SELECT report_id, min(sent_ns) AS sent_ns, max(end_ns) AS end_ns
    FROM (
        SELECT *, sum((coalesce(sent_ns > reached_ns, true))::INTEGER) OVER (
            PARTITION BY report_id ORDER BY sent_ns, end_ns ROWS UNBOUNDED PRECEDING
        ) AS island
        FROM ordered
    )
    GROUP BY report_id, island
)
SELECT n.report_id, n.iteration, greatest(n.previous_ns, i.sent_ns) AS start_ns,
    least(n.start_ns, i.end_ns) AS end_ns
FROM _engine_iterations AS n
JOIN islands AS i ON i.report_id = n.report_id AND i.sent_ns < n.start_ns AND i.end_ns > n.previous_ns
WHERE n.start_ns > n.previous_ns;
