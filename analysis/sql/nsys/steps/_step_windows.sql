-- The time of each GPU in windows, one after the other: steps of the process with the most GPU time,
-- and what lies before, between and behind them.  Without steps the whole is one window.
-- @materialize
CREATE VIEW _step_windows AS
WITH lanes AS (
    SELECT track, pid
    FROM _process_steps
    GROUP BY track, pid
    QUALIFY row_number() OVER (PARTITION BY track ORDER BY max(end_ns) - min(start_ns) DESC, pid) = 1
),
own AS (
    SELECT
        s.*,
        row_number() OVER w AS step,
        -- Up to where steps have reached, so that windows never overlap.
        coalesce(
            max(s.end_ns) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            p.start_ns
        ) AS reached
    FROM _process_steps AS s
    SEMI JOIN lanes USING (track, pid)
    JOIN _spans AS p USING (track)
    WINDOW w AS (PARTITION BY s.track ORDER BY s.start_ns, s.host_start_ns)
),
parts AS (
    SELECT track, pid, step, name, source, loop, main, host_start_ns, host_end_ns, match, start_ns, end_ns
    FROM own
    UNION ALL
    SELECT track, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, reached, start_ns
    FROM own
    WHERE reached < start_ns
    UNION ALL
    SELECT
        p.track, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL,
        coalesce(e.end_ns, p.start_ns), p.end_ns
    FROM _spans AS p
    LEFT JOIN (SELECT track, max(end_ns) AS end_ns FROM own GROUP BY track) AS e USING (track)
    WHERE e.end_ns IS NULL OR e.end_ns < p.end_ns
),
-- Steps begin with an operation; what lies between begins where the last operation ended.
following AS (
    SELECT p.track, p.start_ns, min(o.start_ns) AS first_ns
    FROM parts AS p
    JOIN _classed_ops AS o ON o.track = p.track AND o.start_ns >= p.start_ns
    WHERE p.step IS NULL
    GROUP BY p.track, p.start_ns
)
SELECT
    p.*,
    if(p.step IS NULL, f.first_ns, p.start_ns) AS first_ns,
    (row_number() OVER (
        PARTITION BY p.track ORDER BY p.start_ns, p.end_ns, p.step NULLS LAST
    ))::INTEGER AS window_id
FROM parts AS p
LEFT JOIN following AS f ON f.track = p.track AND f.start_ns = p.start_ns AND p.step IS NULL;
