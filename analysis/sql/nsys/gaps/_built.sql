-- Idle intervals during which the host builds (_building), with the part before the launching call that this
-- takes. The launching thread builds; or another thread of its process builds a graph while the launching
-- thread calls no CUDA, or compiles while the launching thread waits in an OS call: other work of the host
-- goes on beside a compilation. An interval of which CUDA graphs take over half counts as a whole
-- (`graphs`). `tried` is true if the compiler itself launches: in its range, or on a thread on which XLA
-- compiles and runs no program. Before such a launch, everything since the compiler began is a part of it,
-- whatever was recorded.
-- @materialize
CREATE VIEW _built AS
WITH gaps AS (
    SELECT g.track, g.op_id, g.report_id, g.pid, g.tid, g.start_ns, g.call_ns, b.kind
    FROM _idle AS g
    JOIN (SELECT DISTINCT report_id, pid, kind FROM _building) AS b USING (report_id, pid)
    LEFT JOIN _analysed AS a USING (track, window_id)
    WHERE g.call_ns IS NOT NULL AND (b.kind = 'graph' OR a.track IS NOT NULL)
),
compiling AS (
    FROM _building WHERE kind = 'code'
),
-- Those that end later than all earlier ones of the process: together they are as long as all.
ends AS (
    SELECT report_id, pid, kind, start_ns, end_ns
    FROM compiling
    QUALIFY coalesce(end_ns > max(end_ns) OVER (
        PARTITION BY report_id, pid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
code_gaps AS (
    FROM gaps WHERE kind = 'code'
),
names AS (
    SELECT name FROM _names WHERE kind = 'os' AND is_waiting(name)
),
waits AS (
    SELECT report_id, pid, tid, start_ns, end_ns
    FROM nsys_osrt
    SEMI JOIN code_gaps USING (report_id, pid, tid)
    WHERE name IN (SELECT name FROM names) AND end_ns - start_ns >= threshold('timeline.named_call_ns')
),
-- Graphs that another thread than the launching one builds.
elsewhere AS (
    SELECT t.report_id, t.pid, t.tid, b.kind, b.start_ns, b.end_ns
    FROM (SELECT DISTINCT report_id, pid, tid, kind FROM gaps) AS t
    JOIN _building AS b USING (report_id, pid, kind)
    WHERE t.kind = 'graph' AND b.tid != t.tid
),
spans AS (
    FROM _building SEMI JOIN gaps USING (report_id, pid, tid, kind)
    UNION ALL
    SELECT e.*
    FROM elsewhere AS e
    ASOF LEFT JOIN (FROM nsys_api_calls SEMI JOIN elsewhere USING (report_id, pid, tid)) AS c
        ON c.report_id = e.report_id AND c.pid = e.pid AND c.tid = e.tid AND c.start_ns < e.end_ns
    WHERE coalesce(c.end_ns <= e.start_ns, true)
    UNION ALL
    SELECT w.report_id, w.pid, w.tid, c.kind, greatest(w.start_ns, c.start_ns), least(w.end_ns, c.end_ns)
    FROM waits AS w
    JOIN ends AS c
        ON c.report_id = w.report_id AND c.pid = w.pid AND c.start_ns < w.end_ns AND c.end_ns > w.start_ns
),
apart AS (
    SELECT * REPLACE (greatest(start_ns, coalesce(max(end_ns) OVER earlier, start_ns)) AS start_ns)
    FROM spans
    WINDOW earlier AS (
        PARTITION BY report_id, pid, tid, kind ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY coalesce(end_ns > max(end_ns) OVER earlier, true)
),
-- The thread's total up to the end of an interval minus its total up to the start.
totals AS (
    SELECT *, sum(end_ns - start_ns) OVER (
        PARTITION BY report_id, pid, tid, kind ORDER BY start_ns ROWS UNBOUNDED PRECEDING
    ) AS until_ns
    FROM apart
),
moments AS (
    SELECT *, unnest([start_ns, call_ns]) AS at_ns, unnest([-1, 1]) AS sign
    FROM gaps
),
parts AS (
    SELECT m.track, m.op_id, m.kind, any_value(m.call_ns - m.start_ns) AS dur_ns,
        sum(m.sign * (t.until_ns - greatest(0, t.end_ns - m.at_ns)))::BIGINT AS part_ns
    FROM moments AS m
    ASOF JOIN totals AS t
        ON t.report_id = m.report_id AND t.pid = m.pid AND t.tid = m.tid AND t.kind = m.kind
            AND t.start_ns < m.at_ns
    GROUP BY m.track, m.op_id, m.kind
    HAVING part_ns > 0
),
-- Threads on which XLA compiles and launches, but runs no program.
workers AS (
    SELECT DISTINCT report_id, pid, tid
    FROM compiling
    SEMI JOIN _compilations USING (report_id, pid)
    ANTI JOIN (
        FROM nsys_nvtx_ranges WHERE starts_with(name, 'XlaModule:') AND contains(name, 'program_id=')
    ) USING (report_id, pid, tid)
),
tried AS (
    SELECT g.*
    FROM code_gaps AS g
    ASOF JOIN compiling AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns <= g.call_ns
    WHERE c.end_ns > g.call_ns
    UNION
    SELECT g.*
    FROM code_gaps AS g
    SEMI JOIN workers USING (report_id, pid, tid)
    ASOF JOIN _compilations AS c ON c.report_id = g.report_id AND c.pid = g.pid AND c.end_ns >= g.call_ns
),
found AS (
    SELECT track, op_id, if(kind = 'graph', dur_ns, part_ns) AS built_ns, false AS tried, kind
    FROM parts
    WHERE kind = 'code' OR 2 * part_ns > dur_ns
    UNION ALL
    SELECT
        g.track, g.op_id,
        g.call_ns - if(e.start_ns BETWEEN g.start_ns AND g.call_ns, e.start_ns, g.start_ns), true, 'code'
    FROM tried AS g
    ASOF LEFT JOIN ends AS e ON e.report_id = g.report_id AND e.pid = g.pid AND e.end_ns > g.start_ns
)
SELECT track, op_id, greatest(max(built_ns), 0) AS built_ns, bool_or(tried) AS tried,
    bool_or(kind = 'graph') AS graphs
FROM found
GROUP BY track, op_id;
