-- Phase of each window of each process with steps, and the reason. Warm-up consists of the first steps up to
-- the last one that loads, allocates or takes far longer than the median, and the next step, in which the
-- host catches up. Steps that launch other work or take a multiple of the median are different, unless so
-- many take as long that this is normal for the program: as for an engine, whose iterations do work of many
-- sizes. In a capture that began while the program ran, the time before the steps is no start-up, and slow
-- steps after the first one are no warm-up.
-- @materialize
CREATE VIEW _step_phases AS
WITH own AS (
    SELECT DISTINCT report_id, pid, host_start_ns, host_end_ns
    FROM _process_steps
),
-- Host activity in a step that does not occur in every step, and its duration, ns.
step_signals AS (
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
    GROUP BY ALL
),
signals AS (
    SELECT
        report_id,
        pid,
        host_start_ns,
        sum(time_ns) AS time_ns,
        string_agg(what, ', ' ORDER BY time_ns DESC, what) AS what
    FROM step_signals
    GROUP BY report_id, pid, host_start_ns
),
measured AS (
    SELECT
        w.track,
        w.lane,
        w.window_id,
        w.pid,
        w.main,
        w.step,
        w.match,
        w.start_ns,
        w.end_ns - w.start_ns AS step_ns,
        coalesce(s.time_ns, 0) AS occasional_ns,
        s.what,
        median(w.end_ns - w.start_ns) OVER main AS median_ns,
        -- Modules that every step loads are not warm-up.
        median(coalesce(s.time_ns, 0)) OVER main AS usual_ns,
        min(w.start_ns) OVER main AS first_ns,
        max(w.end_ns) OVER main AS last_ns,
        row_number() OVER (PARTITION BY w.track, w.lane, w.main ORDER BY w.window_id) AS place,
        m.pid IS NOT NULL AS midway,
        (g.report_id, w.pid) IN (SELECT (report_id, pid) FROM _engines) AS of_engine
    FROM _lane_windows AS w
    JOIN _gpus AS g USING (track)
    LEFT JOIN _midway AS m ON m.report_id = g.report_id AND m.pid = w.lane_pid
    LEFT JOIN signals AS s
        ON s.report_id = g.report_id AND s.pid = w.pid AND s.host_start_ns = w.host_start_ns
    WINDOW main AS (PARTITION BY w.track, w.lane, w.main)
),
disturbed AS (
    SELECT
        *,
        main AND (
            occasional_ns > 2 * usual_ns + threshold('timeline.warm_up_share') * median_ns
            -- The first step of a capture may contain the start of the profiler.
            OR ((NOT midway OR (place = 1 AND NOT of_engine))
                AND step_ns > threshold('timeline.warm_up_times') * median_ns)
        ) AS disturbed
    FROM measured
),
counted AS (
    SELECT
        *,
        sum(disturbed::INTEGER) OVER (PARTITION BY track, lane, main ORDER BY window_id) AS disturbed_so_far
    FROM disturbed
),
warm_up AS (
    -- At least two of three steps up to there are disturbed: a slow step later on is not warm-up, nor is
    -- every other step.
    SELECT
        track,
        lane,
        max(place) FILTER (disturbed AND 3 * disturbed_so_far >= 2 * place) AS until,
        max(place) AS steps
    FROM counted
    WHERE main
    GROUP BY track, lane
),
settled AS (
    -- The next step as well, if enough steps remain.
    SELECT
        track,
        lane,
        if(until + 1 + threshold('timeline.loop_repeats') <= steps, until + 1, until) AS until,
        until AS last
    FROM warm_up
),
lasting AS (
    SELECT
        c.track,
        c.lane,
        avg((c.step_ns > threshold('timeline.alike_times') * c.median_ns)::INTEGER)
            >= threshold('timeline.recurring_share')
        OR bool_or(c.of_engine) AS usual
    FROM counted AS c
    LEFT JOIN settled AS s USING (track, lane)
    WHERE c.main AND c.place > coalesce(s.until, 0)
    GROUP BY c.track, c.lane
),
bounds AS (
    SELECT track, lane, min(first_ns) FILTER (main) AS first_ns, max(last_ns) FILTER (main) AS last_ns
    FROM measured
    GROUP BY track, lane
)
SELECT
    c.track,
    c.window_id,
    CASE
        WHEN b.first_ns IS NULL THEN 'whole'
        WHEN NOT c.main AND c.start_ns < b.first_ns THEN if(c.midway, 'other', 'start-up')
        WHEN NOT c.main AND c.start_ns >= b.last_ns THEN if(c.step IS NULL, 'shutdown', 'other')
        WHEN NOT c.main THEN 'other'
        WHEN c.place <= s.until THEN 'warm-up'
        WHEN c.match < threshold('timeline.alike_match') THEN 'other'
        WHEN NOT u.usual AND c.step_ns > threshold('timeline.alike_times') * c.median_ns THEN 'other'
        ELSE 'steady'
    END AS phase,
    CASE
        WHEN b.first_ns IS NULL THEN 'no repeating step found; the whole capture is analyzed'
        WHEN c.main AND c.place <= s.last AND c.disturbed AND c.occasional_ns > 2 * c.usual_ns THEN c.what
        WHEN c.main AND c.place <= s.last AND c.disturbed
            THEN printf('takes %.1f times the median', c.step_ns / c.median_ns)
        WHEN c.main AND c.place <= s.last THEN 'between warm-up steps'
        WHEN c.main AND c.place <= s.until THEN 'follows the last warm-up step'
        WHEN c.main AND c.match < threshold('timeline.alike_match')
            THEN printf('%.0f %% of the launches match the launches of the neighboring steps', 100 * c.match)
        WHEN c.main AND NOT u.usual AND c.step_ns > threshold('timeline.alike_times') * c.median_ns
            THEN printf('takes %.1f times the median', c.step_ns / c.median_ns)
        WHEN NOT c.main AND c.step IS NOT NULL THEN 'another loop'
        WHEN NOT c.main AND c.midway AND c.start_ns < b.first_ns
            THEN 'the program ran before the capture began'
    END AS why
FROM counted AS c
LEFT JOIN settled AS s USING (track, lane)
LEFT JOIN lasting AS u USING (track, lane)
JOIN bounds AS b USING (track, lane);
