-- Time of each thread in ranges of compilers that build the same code again, as intervals that do not
-- overlap. A range of XLA belongs to the compilation of a program that ends next; it counts if the analyzed
-- windows contain three compilations of this program or more, except for the first one of the process. Ranges
-- of other compilers count if the process loads modules again and again (_reloaded).
-- @materialize
CREATE VIEW _recompiling AS
WITH processes AS (
    SELECT DISTINCT report_id, pid
    FROM _compilations
    WHERE repeated
    UNION
    SELECT DISTINCT g.report_id, g.pid
    FROM _reloaded
    JOIN _idle AS g USING (track, op_id)
),
names AS (
    SELECT name FROM _names WHERE kind = 'range' AND is_compilation(name)
),
ranges AS (
    SELECT report_id, pid, tid, start_ns, end_ns
    FROM nsys_nvtx_ranges
    SEMI JOIN processes USING (report_id, pid)
    WHERE end_ns > start_ns AND name IN (SELECT name FROM names)
),
counted AS (
    SELECT r.*
    FROM ranges AS r
    ASOF JOIN _compilations AS c
        ON c.report_id = r.report_id AND c.pid = r.pid AND c.end_ns >= r.start_ns
    WHERE c.repeated
    UNION ALL
    FROM ranges ANTI JOIN _compilations USING (report_id, pid)
)
SELECT report_id, pid, tid, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM (
    SELECT *, count(if(starts, 1, NULL)) OVER (
        PARTITION BY report_id, pid, tid ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
    ) AS island
    FROM (
        SELECT *, coalesce(start_ns > max(end_ns) OVER (
            PARTITION BY report_id, pid, tid ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), true) AS starts
        FROM counted
    )
)
GROUP BY report_id, pid, tid, island;
