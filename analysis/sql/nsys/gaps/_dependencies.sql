-- Idle intervals in which issued work waits on the device, with the calls that ordered this work behind other
-- work: those between the previous launch on its stream and its own launch, by any thread of the process.
-- @materialize
CREATE VIEW _dependencies AS
WITH waiting AS (
    SELECT g.track, g.op_id, l.report_id, l.pid, l.device, l.stream, l.api_start_ns
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE g.device_wait_ns > 0
),
earlier AS (
    SELECT report_id, pid, device, stream, api_start_ns
    FROM launches
    SEMI JOIN waiting USING (report_id, pid, device, stream)
    WHERE api_start_ns IS NOT NULL
),
since AS (
    SELECT w.*, coalesce(e.api_start_ns, 0) AS since_ns
    FROM waiting AS w
    ASOF LEFT JOIN earlier AS e
        ON e.report_id = w.report_id AND e.pid = w.pid AND e.device = w.device AND e.stream = w.stream
            AND e.api_start_ns < w.api_start_ns
),
calls AS (
    SELECT report_id, pid, name, start_ns
    FROM nsys_api_calls
    WHERE name IN (SELECT name FROM _names WHERE kind = 'api' AND is_ordering(name))
)
SELECT s.track, s.op_id, string_agg(DISTINCT c.name, ' and ' ORDER BY c.name) AS calls
FROM since AS s
JOIN calls AS c
    ON c.report_id = s.report_id AND c.pid = s.pid
        AND c.start_ns >= s.since_ns AND c.start_ns < s.api_start_ns
GROUP BY s.track, s.op_id;
