-- What the host did in a step that it does not do in every step, and how long, ns.
CREATE VIEW _step_signals AS
WITH own AS (
    SELECT DISTINCT report_id, pid, host_start_ns, host_end_ns
    FROM _process_steps
)
SELECT
    s.report_id,
    s.pid,
    s.host_start_ns,
    o.what,
    sum(o.end_ns - o.start_ns)::BIGINT AS time_ns
FROM _occasional_calls AS o
ASOF JOIN own AS s
    ON s.report_id = o.report_id AND s.pid = o.pid AND s.host_start_ns <= o.start_ns
WHERE o.start_ns < s.host_end_ns
GROUP BY ALL;
