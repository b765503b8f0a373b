-- Time before each iteration of an engine since the previous one, ns: with requests in progress, and without.
CREATE VIEW _engine_idle AS
WITH loaded AS (
    SELECT report_id, iteration, sum(end_ns - start_ns) AS time_ns
    FROM _engine_between
    GROUP BY report_id, iteration
)
SELECT
    n.report_id,
    n.iteration,
    coalesce(l.time_ns, 0)::BIGINT AS between_ns,
    (greatest(0, n.start_ns - n.previous_ns) - coalesce(l.time_ns, 0))::BIGINT AS empty_ns
FROM _engine_iterations AS n
LEFT JOIN loaded AS l USING (report_id, iteration);
