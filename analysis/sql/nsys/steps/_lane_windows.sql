-- Consecutive windows of each GPU, once for each process with steps on it: its steps, and the time before,
-- between and after them. Lane 1 is the process with the most work; a GPU without steps has one lane with one
-- window.
-- @materialize
CREATE VIEW _lane_windows AS
WITH stepping AS (
    SELECT track, pid, max(end_ns) - min(start_ns) AS span_ns
    FROM _process_steps
    GROUP BY track, pid
),
-- The amount of work of a process only matters if several processes have steps.
contended AS (
    SELECT o.track, o.pid, sum(o.end_ns - o.start_ns) AS time_ns
    FROM _classed_ops AS o
    SEMI JOIN (SELECT track FROM stepping GROUP BY track HAVING count(*) > 1) USING (track)
    GROUP BY o.track, o.pid
),
lanes AS (
    SELECT
        s.track,
        s.pid AS lane_pid,
        (row_number() OVER (
            PARTITION BY s.track ORDER BY c.time_ns DESC NULLS LAST, s.span_ns DESC, s.pid
        ))::INTEGER AS lane
    FROM stepping AS s
    LEFT JOIN contended AS c USING (track, pid)
    UNION ALL
    SELECT track, NULL, 1
    FROM _spans
    ANTI JOIN stepping USING (track)
),
own AS (
    SELECT
        s.*,
        l.lane,
        row_number() OVER w AS step,
        -- Up to the end of earlier steps, so that windows never overlap.
        coalesce(
            max(s.end_ns) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            p.start_ns
        ) AS reached
    FROM _process_steps AS s
    JOIN lanes AS l ON l.track = s.track AND l.lane_pid = s.pid
    JOIN _spans AS p ON p.track = s.track
    WINDOW w AS (PARTITION BY s.track, s.pid ORDER BY s.start_ns, s.host_start_ns)
),
parts AS (
    SELECT
        track, lane, pid, step, name, source, loop, main, host_start_ns, host_end_ns, match, repeats,
        first_ns, start_ns, end_ns
    FROM own
    UNION ALL
    SELECT track, lane, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, reached,
        start_ns
    FROM own
    WHERE reached < start_ns
    UNION ALL
    SELECT
        l.track, l.lane, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL,
        coalesce(e.end_ns, p.start_ns), p.end_ns
    FROM lanes AS l
    JOIN _spans AS p USING (track)
    LEFT JOIN (SELECT track, lane, max(end_ns) AS end_ns FROM own GROUP BY track, lane) AS e
        USING (track, lane)
    WHERE e.end_ns IS NULL OR e.end_ns < p.end_ns
)
SELECT
    p.*,
    l.lane_pid,
    -- Windows of lane 1 are consecutive.
    (row_number() OVER (
        PARTITION BY p.track ORDER BY p.lane, p.start_ns, p.end_ns, p.step NULLS LAST
    ))::INTEGER AS window_id
FROM parts AS p
JOIN lanes AS l USING (track, lane);
