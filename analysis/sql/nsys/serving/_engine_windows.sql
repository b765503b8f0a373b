-- The time from the first to the last iteration of an engine, ns, and the thread that launches most of its
-- work.
-- @materialize
CREATE VIEW _engine_windows AS
WITH threads AS (
    SELECT c.report_id, l.tid
    FROM _served_captures AS c
    JOIN launches AS l ON l.report_id = c.report_id AND l.pid = c.pid
    WHERE l.tid IS NOT NULL
    GROUP BY c.report_id, l.tid
    QUALIFY row_number() OVER (PARTITION BY c.report_id ORDER BY count(*) DESC, l.tid) = 1
)
SELECT c.report_id, c.device, c.rate, c.pid, any_value(t.tid) AS tid,
    max(i.end_ns) - min(i.start_ns) AS window_ns
FROM _engine_iterations AS i
JOIN _served_captures AS c USING (report_id)
LEFT JOIN threads AS t USING (report_id)
GROUP BY c.report_id, c.device, c.rate, c.pid;
