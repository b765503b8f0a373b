-- Steps on the GPU: from the first operation that a step launched to the first of the next step, so
-- that work and idle time in between belong to the earlier one; the last step ends with the last
-- operation of the device.  A host that runs ahead leaves the range of a step long before the GPU
-- begins it.
-- @materialize
CREATE VIEW _step_windows AS
WITH steps AS (
    SELECT report_id, range_id, name, unnest(range(first_call, first_call + calls)) AS call_id
    FROM _steps
    WHERE calls > 0
),
firsts AS (
    SELECT t.track, s.range_id, any_value(s.name) AS name, min(l.start_ns) AS start_ns
    FROM steps AS s
    JOIN launches AS l USING (report_id, call_id)
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    GROUP BY t.track, s.range_id
)
SELECT
    f.track,
    (row_number() OVER w)::INTEGER AS window_id,
    f.name,
    f.start_ns,
    coalesce(lead(f.start_ns) OVER w, e.end_ns) AS end_ns
FROM firsts AS f
JOIN _spans AS e USING (track)
WINDOW w AS (PARTITION BY f.track ORDER BY f.start_ns, f.range_id);
