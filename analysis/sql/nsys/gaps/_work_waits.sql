-- Idle intervals in which the launching thread waits for requests, and the length of this wait, ns. It waits
-- in an event loop or for a connection; or for another thread of its process that did so until then. If the
-- requests are known, all time of the captured window without one is such a wait, whatever was traced.
--
-- A data loader without workers that were seen to start can look the same. A main thread that polls for
-- batches copies them to the GPU next; a main thread that waits for a thread that polls (pinned memory)
-- limits each wait, to check on the workers.
-- @materialize
CREATE VIEW _work_waits AS
WITH names AS (
    SELECT name, is_serving(name) AS serves, is_polling(name) AS polls, is_waiting(name) AS waits,
        regexp_matches(name, 'timed|clock') AS limited
    FROM _names
    WHERE kind = 'os'
),
waiting AS (
    SELECT g.report_id, g.track, g.op_id, g.pid, g.tid, g.start_ns, g.call_ns, n.dur_ns, n.os_ns,
        o.serves,
        o.polls AND p.pid IS NULL AND NOT starts_with(l.name, '[CUDA memcpy Host-to-Device') AS polls,
        o.limited
    FROM _gap_names AS n
    JOIN _idle AS g USING (track, op_id)
    JOIN launches AS l ON l.report_id = g.report_id AND l.op_id = g.op_id
    JOIN names AS o ON o.name = n.os_name
    LEFT JOIN _parents AS p ON p.report_id = g.report_id AND p.pid = g.pid
    WHERE 2 * n.os_ns >= n.dur_ns AND (o.waits OR o.serves)
),
events AS (
    SELECT e.report_id, e.pid, e.tid, e.start_ns, e.end_ns, o.serves
    FROM nsys_osrt AS e
    JOIN names AS o ON o.name = e.name
    LEFT JOIN _parents AS p ON p.report_id = e.report_id AND p.pid = e.pid
    WHERE (o.serves OR (o.polls AND p.pid IS NULL))
        AND e.end_ns - e.start_ns >= threshold('timeline.named_call_ns')
),
-- Another thread woke the launching thread if its own wait fills most of the interval and ended shortly
-- before the launch.
others AS (
    SELECT g.track, g.op_id, e.tid, any_value(g.dur_ns) AS dur_ns, any_value(g.os_ns) AS os_ns
    FROM waiting AS g
    JOIN events AS e
        ON e.report_id = g.report_id AND e.pid = g.pid AND e.tid != g.tid
            AND e.start_ns < g.call_ns AND e.end_ns > g.start_ns AND (e.serves OR NOT g.limited)
    GROUP BY g.track, g.op_id, e.tid
    HAVING 2 * sum(overlap_ns(g.start_ns, g.call_ns, e.start_ns, e.end_ns)) >= any_value(g.dur_ns)
        AND max(e.end_ns) FILTER (e.end_ns <= g.call_ns) >= any_value(g.call_ns) - greatest(
            any_value(g.dur_ns) * threshold('timeline.woken_share'), threshold('timeline.woken_ns')
        )
),
-- By chance this happens now and then.
causing AS (
    SELECT o.track, o.tid
    FROM others AS o
    JOIN (SELECT track, sum(dur_ns) AS ns FROM waiting GROUP BY track) AS w USING (track)
    GROUP BY o.track, o.tid
    HAVING 2 * sum(o.dur_ns) >= any_value(w.ns)
),
loads AS (
    SELECT report_id, start_ns, end_ns FROM _engine_loads
    UNION ALL
    -- The edges of the window.
    SELECT report_id, unnest([start_ns, end_ns]), unnest([start_ns, end_ns]) FROM _served_captures
),
empty AS (
    SELECT report_id, lag(end_ns) OVER w AS start_ns, start_ns AS end_ns
    FROM loads
    WINDOW w AS (PARTITION BY report_id ORDER BY start_ns, end_ns)
),
found AS (
    SELECT track, op_id, os_ns
    FROM waiting
    WHERE serves OR polls
    UNION ALL
    SELECT o.track, o.op_id, o.os_ns
    FROM others AS o
    SEMI JOIN causing USING (track, tid)
    UNION ALL
    SELECT g.track, g.op_id, sum(overlap_ns(g.start_ns, g.call_ns, e.start_ns, e.end_ns))::BIGINT
    FROM _served_captures AS c
    JOIN _idle AS g ON g.track = c.track AND g.pid = c.pid
    JOIN (FROM empty WHERE end_ns > start_ns) AS e
        ON e.report_id = g.report_id AND e.start_ns < g.call_ns AND e.end_ns > g.start_ns
    WHERE g.call_ns - g.start_ns >= threshold('timeline.named_call_ns')
    GROUP BY g.track, g.op_id
)
SELECT track, op_id, max(os_ns) AS os_ns
FROM found
GROUP BY track, op_id;
