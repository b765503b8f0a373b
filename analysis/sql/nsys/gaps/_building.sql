-- Time in which threads build what is launched later, as intervals of each kind that do not overlap. For the
-- kind 'graph', a thread captures work in a CUDA graph, which does not run yet, or instantiates a graph. For
-- the kind 'code', it is in ranges of compilers that build the same code again. A range of XLA belongs to the
-- compilation of a program that ends next; it counts if the analyzed windows contain three compilations of
-- this program or more, except for the first one of the process. Ranges of other compilers count if the
-- process loads modules again and again (_reloaded).
-- @materialize
CREATE VIEW _building AS
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
processes AS (
    SELECT DISTINCT report_id, pid
    FROM _compilations
    WHERE repeated
    UNION
    SELECT DISTINCT g.report_id, g.pid
    FROM _reloaded
    JOIN _idle AS g USING (track, op_id)
),
ranges AS (
    SELECT report_id, pid, tid, start_ns, end_ns
    FROM nsys_nvtx_ranges
    SEMI JOIN processes USING (report_id, pid)
    WHERE end_ns > start_ns
        AND name IN (SELECT name FROM _names WHERE kind = 'range' AND is_compilation(name))
),
spans AS (
    SELECT b.report_id, b.pid, b.tid, 'graph' AS kind, b.start_ns, e.end_ns
    FROM (FROM calls WHERE begins) AS b
    ASOF JOIN (FROM calls WHERE ends) AS e
        ON e.report_id = b.report_id AND e.pid = b.pid AND e.tid = b.tid AND e.start_ns >= b.start_ns
    UNION ALL
    SELECT report_id, pid, tid, 'graph', start_ns, end_ns
    FROM calls
    WHERE NOT begins AND NOT ends
    UNION ALL
    SELECT r.report_id, r.pid, r.tid, 'code', r.start_ns, r.end_ns
    FROM ranges AS r
    ASOF JOIN _compilations AS c
        ON c.report_id = r.report_id AND c.pid = r.pid AND c.end_ns >= r.start_ns
    WHERE c.repeated
    UNION ALL
    SELECT report_id, pid, tid, 'code', start_ns, end_ns
    FROM ranges
    ANTI JOIN _compilations USING (report_id, pid)
),
begun AS (
    SELECT *, coalesce(start_ns > max(end_ns) OVER (
        PARTITION BY report_id, pid, tid, kind ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true) AS begins
    FROM spans
),
numbered AS (
    SELECT *, count(if(begins, 1, NULL)) OVER (
        PARTITION BY report_id, pid, tid, kind ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
    ) AS number
    FROM begun
)
SELECT report_id, pid, tid, kind, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM numbered
GROUP BY report_id, pid, tid, kind, number;
