-- Time in which threads build what is launched later, as intervals of each kind that do not overlap: CUDA
-- graphs ('graph'), or code in ranges of compilers ('code'). All ranges of XLA count, and those of other
-- compilers if the process loads modules again and again (_reloaded).
-- @materialize
CREATE VIEW _building AS
WITH processes AS (
    SELECT report_id, pid
    FROM _compilations
    UNION
    SELECT g.report_id, g.pid
    FROM _reloaded
    JOIN _idle AS g USING (track, op_id)
),
spans AS (
    SELECT report_id, pid, tid, 'graph' AS kind, start_ns, end_ns
    FROM _graph_builds
    UNION ALL
    SELECT report_id, pid, tid, 'code', start_ns, end_ns
    FROM nsys_nvtx_ranges
    SEMI JOIN processes USING (report_id, pid)
    WHERE end_ns > start_ns
        AND name IN (SELECT name FROM _names WHERE kind = 'range' AND is_compilation(name))
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
