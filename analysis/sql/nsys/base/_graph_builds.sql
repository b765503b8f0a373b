-- Time in which threads build CUDA graphs: they capture work, which does not run yet, or instantiate a graph.
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
)
SELECT b.report_id, b.pid, b.tid, b.start_ns, e.end_ns
FROM (FROM calls WHERE begins) AS b
ASOF JOIN (FROM calls WHERE ends) AS e
    ON e.report_id = b.report_id AND e.pid = b.pid AND e.tid = b.tid AND e.start_ns >= b.start_ns
UNION ALL
SELECT report_id, pid, tid, start_ns, end_ns
FROM calls
WHERE NOT begins AND NOT ends;
