-- Idle intervals between operations of a device, with the launching call of the operation that ended each
-- interval, unless it was launched before the device became idle.
-- @materialize
CREATE VIEW _idle AS
WITH later AS (
    SELECT DISTINCT o.track, o.op_id
    FROM (FROM _ops WHERE start_ns > busy_until AND coalesce(api_end_ns > busy_until, true)) AS o
    JOIN _gpus AS t USING (track)
    JOIN launches AS l
        ON l.report_id = t.report_id AND l.call_id = o.call_id AND l.start_ns < o.start_ns
),
firsts AS (
    SELECT track, arg_min(op_id, (start_ns, end_ns, op_id)) AS op_id
    FROM _placed_launches
    WHERE stream IS NOT NULL
    GROUP BY track, pid, stream
)
SELECT
    t.report_id,
    o.track,
    -- A window that begins with work of the host begins with idle time.
    if(w.start_ns < o.start_ns, greatest(o.busy_until, w.start_ns), o.busy_until) AS start_ns,
    o.start_ns AS end_ns,
    o.pid,
    o.tid,
    o.op_id,
    o.migrates,
    o.busy_until IS NULL OR f.op_id IS NOT NULL AS is_first,
    -- Idle time before the operation that a window begins with belongs to the previous window.
    o.window_id - if(o.busy_until < w.start_ns AND w.start_ns = o.start_ns, 1, 0) AS window_id,
    -- A call may launch several operations (a graph) and return while the first of them run.
    coalesce(o.api_end_ns <= o.busy_until, false) OR l.op_id IS NOT NULL AS launched,
    CASE WHEN NOT launched THEN o.api_start_ns END AS api_start_ns,
    CASE WHEN NOT launched THEN o.api_end_ns END AS api_end_ns,
    CASE
        WHEN launched OR o.api_start_ns IS NULL THEN NULL
        ELSE least(o.api_start_ns, o.start_ns)
    END AS call_ns
FROM _ops AS o
JOIN _gpus AS t USING (track)
JOIN _step_windows AS w ON w.track = o.track AND w.window_id = o.window_id
LEFT JOIN later AS l ON l.track = o.track AND l.op_id = o.op_id
LEFT JOIN firsts AS f ON f.track = o.track AND f.op_id = o.op_id
WHERE o.start_ns > if(w.start_ns < o.start_ns, greatest(o.busy_until, w.start_ns), o.busy_until);
