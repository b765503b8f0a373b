-- Idle intervals of which the launching thread spends over half on building CUDA graphs: it captures work,
-- which then does not run, or instantiates a graph.
-- @materialize
CREATE VIEW _graph_builds AS
WITH names AS (
    SELECT name, is_capturing(name) AS begins, is_ending(name) AS ends
    FROM _names
    WHERE kind = 'api' AND (is_capturing(name) OR is_ending(name) OR is_instantiating(name))
),
calls AS (
    SELECT c.report_id, c.pid, c.tid, c.start_ns, c.end_ns, n.begins, n.ends
    FROM nsys_api_calls AS c
    JOIN names AS n ON n.name = c.name
),
spans AS (
    SELECT b.report_id, b.pid, b.tid, b.start_ns, e.end_ns
    FROM (FROM calls WHERE begins) AS b
    ASOF JOIN (FROM calls WHERE ends) AS e
        ON e.report_id = b.report_id AND e.pid = b.pid AND e.tid = b.tid AND e.start_ns >= b.start_ns
    UNION ALL
    SELECT report_id, pid, tid, start_ns, end_ns
    FROM calls
    WHERE NOT begins AND NOT ends
),
apart AS (
    SELECT * REPLACE (greatest(start_ns, coalesce(max(end_ns) OVER earlier, start_ns)) AS start_ns)
    FROM spans
    WINDOW earlier AS (
        PARTITION BY report_id, pid, tid ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY coalesce(end_ns > max(end_ns) OVER earlier, true)
),
-- The thread's total up to the end of an interval minus its total up to the start.
totals AS (
    SELECT *, sum(end_ns - start_ns) OVER (
        PARTITION BY report_id, pid, tid ORDER BY start_ns ROWS UNBOUNDED PRECEDING
    ) AS until_ns
    FROM apart
),
moments AS (
    SELECT *, unnest([start_ns, call_ns]) AS at_ns, unnest([-1, 1]) AS sign
    FROM (FROM _idle SEMI JOIN apart USING (report_id, pid, tid) WHERE call_ns > start_ns)
)
SELECT m.track, m.op_id
FROM moments AS m
ASOF JOIN totals AS t
    ON t.report_id = m.report_id AND t.pid = m.pid AND t.tid = m.tid AND t.start_ns < m.at_ns
GROUP BY m.track, m.op_id
HAVING 2 * sum(m.sign * (t.until_ns - greatest(0, t.end_ns - m.at_ns)))
    > any_value(m.call_ns - m.start_ns);
