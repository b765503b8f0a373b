-- Time in which threads build what is launched later, as intervals of each kind that do not overlap: CUDA
-- graphs ('graph'), or the same code again ('code'), in ranges of compilers. A range of XLA belongs to the
-- compilation of a program that ends next; it counts if the analyzed windows contain three compilations of
-- this program or more, except for the first one of the process. Ranges of other compilers count if the
-- process loads modules again and again (_reloaded).
-- @materialize
CREATE VIEW _building AS
WITH processes AS (
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
    SELECT report_id, pid, tid, 'graph' AS kind, start_ns, end_ns
    FROM _graph_builds
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
