-- Idle intervals in which a compiler builds the same code again (_recompiling), with the part before the
-- launching call that it takes. The launching thread is in a range of a compiler, or it waits in an OS call
-- while another thread of its process is in one: other work of the host goes on beside a compilation. `tried`
-- is true if the compiler itself launches: in its range, or on a thread on which XLA compiles and runs no
-- program. Before such a launch, everything since the compiler began is a part of it, whatever was recorded.
-- @materialize
CREATE VIEW _built AS
WITH gaps AS (
    SELECT track, op_id, report_id, pid, tid, start_ns, call_ns
    FROM _idle
    SEMI JOIN _analysed USING (track, window_id)
    SEMI JOIN _recompiling USING (report_id, pid)
    WHERE call_ns IS NOT NULL
),
threads AS (
    SELECT DISTINCT report_id, pid, tid FROM gaps
),
-- Threads on which XLA compiles and launches, but runs no program.
workers AS (
    FROM threads
    SEMI JOIN _compilations USING (report_id, pid)
    SEMI JOIN _recompiling USING (report_id, pid, tid)
    ANTI JOIN (
        FROM nsys_nvtx_ranges WHERE starts_with(name, 'XlaModule:') AND contains(name, 'program_id=')
    ) USING (report_id, pid, tid)
),
names AS (
    SELECT name FROM _names WHERE kind = 'os' AND is_waiting(name)
),
waits AS (
    SELECT o.report_id, o.pid, o.tid, o.start_ns, o.end_ns
    FROM nsys_osrt AS o
    SEMI JOIN threads USING (report_id, pid, tid)
    WHERE o.name IN (SELECT name FROM names) AND o.end_ns - o.start_ns >= threshold('timeline.named_call_ns')
),
spans AS (
    FROM _recompiling SEMI JOIN threads USING (report_id, pid, tid)
    UNION ALL
    SELECT w.report_id, w.pid, w.tid, greatest(w.start_ns, r.start_ns), least(w.end_ns, r.end_ns)
    FROM waits AS w
    JOIN _recompiling AS r
        ON r.report_id = w.report_id AND r.pid = w.pid AND r.start_ns < w.end_ns AND r.end_ns > w.start_ns
    WHERE r.tid != w.tid
),
apart AS (
    SELECT report_id, pid, tid, greatest(start_ns, coalesce(max(end_ns) OVER earlier, 0)) AS start_ns, end_ns
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
    FROM gaps
),
built AS (
    SELECT m.track, m.op_id, sum(m.sign * (t.until_ns - greatest(0, t.end_ns - m.at_ns)))::BIGINT AS built_ns
    FROM moments AS m
    ASOF JOIN totals AS t
        ON t.report_id = m.report_id AND t.pid = m.pid AND t.tid = m.tid AND t.start_ns < m.at_ns
    GROUP BY m.track, m.op_id
),
tried AS (
    SELECT g.*
    FROM gaps AS g
    ASOF JOIN _recompiling AS r
        ON r.report_id = g.report_id AND r.pid = g.pid AND r.tid = g.tid AND r.start_ns <= g.call_ns
    WHERE r.end_ns > g.call_ns
    UNION
    SELECT g.*
    FROM gaps AS g
    SEMI JOIN workers USING (report_id, pid, tid)
    ASOF JOIN _compilations AS c ON c.report_id = g.report_id AND c.pid = g.pid AND c.end_ns >= g.call_ns
    WHERE c.repeated
),
-- Where ranges of each process end later than all earlier ones.
ends AS (
    SELECT report_id, pid, start_ns, end_ns
    FROM _recompiling
    QUALIFY coalesce(end_ns > max(end_ns) OVER (
        PARTITION BY report_id, pid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
begun AS (
    SELECT
        g.track, g.op_id,
        g.call_ns - if(e.start_ns BETWEEN g.start_ns AND g.call_ns, e.start_ns, g.start_ns) AS built_ns
    FROM tried AS g
    ASOF LEFT JOIN ends AS e ON e.report_id = g.report_id AND e.pid = g.pid AND e.end_ns > g.start_ns
)
SELECT
    g.track, g.op_id, greatest(coalesce(b.built_ns, 0), coalesce(t.built_ns, 0), 0) AS built_ns,
    t.op_id IS NOT NULL AS tried
FROM gaps AS g
LEFT JOIN built AS b USING (track, op_id)
LEFT JOIN begun AS t USING (track, op_id)
WHERE b.built_ns > 0 OR t.op_id IS NOT NULL;
