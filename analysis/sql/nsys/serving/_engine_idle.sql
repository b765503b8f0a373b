-- Time before each iteration of an engine since the previous one, ns: with requests in progress, and without.
CREATE VIEW _engine_idle AS
WITH gaps AS (
    SELECT report_id, iteration, greatest(0, start_ns - lag(end_ns) OVER w) AS time_ns
    FROM _engine_iterations
    WINDOW w AS (PARTITION BY report_id ORDER BY iteration)
),
loaded AS (
    SELECT report_id, iteration, sum(end_ns - start_ns) AS time_ns
    FROM _engine_between
    GROUP BY report_id, iteration
)
SELECT
    g.report_id,
    g.iteration,
    coalesce(l.time_ns, 0)::BIGINT AS between_ns,
    (coalesce(g.time_ns, 0) - coalesce(l.time_ns, 0))::BIGINT AS empty_ns
FROM gaps AS g
LEFT JOIN loaded AS l USING (report_id, iteration);
