-- Host activity during idle time before a launching call, if that time is longer than a launch gap: the
-- innermost NVTX range of the launching thread that covers at least half of it, the CUDA call and the OS call
-- with the most time in it, and the activity of another thread that covers half of it.
-- @materialize
CREATE VIEW _gap_names AS
WITH RECURSIVE long AS MATERIALIZED (
    SELECT
        i.report_id, i.track, i.op_id, i.pid, i.tid, i.start_ns, i.call_ns AS end_ns,
        i.call_ns - i.start_ns AS dur_ns, (i.start_ns + i.call_ns) // 2 AS middle_ns
    FROM _idle AS i
    JOIN _launch_gap_limits AS l USING (track)
    WHERE i.call_ns - i.start_ns > l.limit_ns
),
-- An activity that covers half of an interval is open in its middle. If several begin at once, the inner one
-- is used.
ranges AS MATERIALIZED (
    SELECT report_id, pid, tid, range_id, enclosing, name, coalesce(calls, 1) > 0 AS launches, start_ns,
        coalesce(end_ns, 9223372036854775807) AS end_ns
    FROM nsys_nvtx_ranges
    WHERE style IS DISTINCT FROM 'Mark' AND NOT is_of_profiler(domain)
        AND coalesce(end_ns - start_ns, 9e18) >= threshold('timeline.launch_gap_ns') / 2
),
inner_ranges AS (
    FROM ranges
    QUALIFY row_number() OVER (PARTITION BY report_id, pid, tid, start_ns ORDER BY range_id DESC) = 1
),
climbed AS (
    SELECT g.report_id, g.track, g.op_id, g.dur_ns, g.start_ns, g.end_ns, r.enclosing, r.name, r.launches,
        overlap_ns(g.start_ns, g.end_ns, r.start_ns, r.end_ns) AS open_ns
    FROM long AS g
    ASOF JOIN inner_ranges AS r
        ON r.report_id = g.report_id AND r.pid = g.pid AND r.tid = g.tid AND r.start_ns <= g.middle_ns
    UNION ALL
    SELECT g.report_id, g.track, g.op_id, g.dur_ns, g.start_ns, g.end_ns, r.enclosing, r.name, r.launches,
        overlap_ns(g.start_ns, g.end_ns, r.start_ns, r.end_ns)
    FROM climbed AS g
    JOIN ranges AS r ON r.report_id = g.report_id AND r.range_id = g.enclosing
    WHERE 2 * g.open_ns < g.dur_ns
),
-- Most calls are short and cannot matter.
calls AS MATERIALIZED (
    SELECT 'api' AS kind, report_id, pid, tid, name, start_ns, end_ns
    FROM nsys_api_calls
    WHERE end_ns - start_ns >= threshold('timeline.named_call_ns')
    UNION ALL
    SELECT 'os', report_id, pid, tid, name, start_ns, end_ns
    FROM nsys_osrt
    WHERE end_ns - start_ns >= threshold('timeline.named_call_ns') AND coalesce(nesting_level, 0) = 0
),
threads AS (
    SELECT DISTINCT report_id, pid, tid, track
    FROM long
),
-- Calls that begin during an interval, and the call of each kind that extends into it.
inside AS (
    SELECT g.track, g.op_id, c.kind, c.name, least(c.end_ns, g.end_ns) - c.start_ns AS ns
    FROM (FROM calls JOIN threads USING (report_id, pid, tid)) AS c
    ASOF JOIN long AS g
        ON g.report_id = c.report_id AND g.track = c.track AND g.pid = c.pid AND g.tid = c.tid
            AND g.start_ns <= c.start_ns
    WHERE c.start_ns < g.end_ns
    UNION ALL
    SELECT g.track, g.op_id, c.kind, c.name, least(c.end_ns, g.end_ns) - g.start_ns
    FROM (FROM long CROSS JOIN (SELECT unnest(['api', 'os']) AS kind)) AS g
    ASOF JOIN calls AS c
        ON c.kind = g.kind AND c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid
            AND c.start_ns < g.start_ns
    WHERE c.end_ns > g.start_ns
),
summed AS (
    SELECT track, op_id, kind, name, sum(ns)::BIGINT AS ns
    FROM inside
    GROUP BY ALL
),
named AS (
    SELECT
        track,
        op_id,
        arg_max(name, (ns, name)) FILTER (kind = 'api') AS api_name,
        max(ns) FILTER (kind = 'api') AS api_ns,
        arg_max(name, (ns, name)) FILTER (kind = 'os') AS os_name,
        max(ns) FILTER (kind = 'os') AS os_ns
    FROM summed
    GROUP BY track, op_id
),
-- Threads that wait for work do not explain idle time.
spans AS (
    SELECT 'range' AS kind, report_id, pid, tid, name, start_ns, end_ns
    FROM inner_ranges
    UNION ALL
    SELECT kind, report_id, pid, tid, name, start_ns, end_ns
    FROM calls
    WHERE kind = 'os' AND NOT is_waiting(name)
),
elsewhere AS (
    SELECT g.track, g.op_id, s.kind, s.name, overlap_ns(g.start_ns, g.end_ns, s.start_ns, s.end_ns) AS ns
    FROM (
        SELECT g.* EXCLUDE (tid), o.tid
        FROM long AS g
        JOIN (SELECT DISTINCT report_id, pid, tid FROM spans) AS o USING (report_id, pid)
        WHERE o.tid != g.tid
    ) AS g
    ASOF JOIN spans AS s
        ON s.report_id = g.report_id AND s.pid = g.pid AND s.tid = g.tid AND s.start_ns <= g.middle_ns
    WHERE 2 * overlap_ns(g.start_ns, g.end_ns, s.start_ns, s.end_ns) >= g.dur_ns
        -- A call that continues long after the interval did not delay the host.
        AND (s.kind = 'range' OR s.end_ns <= g.end_ns + g.dur_ns)
),
others AS (
    SELECT track, op_id, arg_max({kind: kind, name: name}, (ns, kind, name)) AS other
    FROM elsewhere
    GROUP BY track, op_id
)
SELECT
    g.track, g.op_id, g.dur_ns, c.name AS range_name, c.launches AS range_launches,
    n.api_name, n.api_ns, n.os_name, n.os_ns, o.other.kind AS other_kind, o.other.name AS other_name
FROM long AS g
LEFT JOIN climbed AS c ON c.track = g.track AND c.op_id = g.op_id AND 2 * c.open_ns >= g.dur_ns
LEFT JOIN named AS n ON n.track = g.track AND n.op_id = g.op_id
LEFT JOIN others AS o ON o.track = g.track AND o.op_id = g.op_id;
