-- Launches of the process to profile, on its GPU, that ncu may profile: those in the first step of the
-- analyzed window, and the first launch after it of each configuration. Communication and kernels with which
-- a benchmark flushes the L2 cache are excluded. `place` is the number of the launch among all launches of
-- the process from the start of the window, as ncu counts them; `earlier_place` is the place of the previous
-- launch of the same configuration. `gain_ns` is the time that a profile of the launch represents: the
-- launches of the same configuration in the window that take about as long, because a kernel may do different
-- work with the same grid (persistent kernels always have the same grid).
-- @materialize
CREATE VIEW _plan_launches AS
WITH windows AS (
    SELECT
        p.report_id,
        -- Sorts and joins faster than the name.
        row_number() OVER () AS report,
        p.pid,
        p.cuda_device,
        w.start_ns AS window_start_ns,
        w.end_ns AS window_end_ns,
        w.steps
    FROM _profiled_process AS p
    JOIN analysis_windows AS w
        ON w.report_id = p.report_id AND w.device IS NOT DISTINCT FROM p.device
),
left_out AS (
    SELECT DISTINCT w.report, k.config
    FROM _window_kernels AS k
    JOIN windows AS w USING (report_id)
    WHERE k.communication OR k.flush
),
-- Launches are counted per process, for all of its GPUs.
numbered AS (
    SELECT
        w.report,
        k.config,
        k.start_ns,
        k.end_ns,
        k.dur_ns,
        k.device IS NOT DISTINCT FROM w.cuda_device AS own,
        k.start_ns < w.window_end_ns AS inside,
        row_number() OVER (
            PARTITION BY w.report ORDER BY k.start_ns, k.device, k.stream, k.config, k.end_ns
        ) AS place
    FROM _configured_kernels AS k
    JOIN windows AS w ON w.report_id = k.report_id AND w.pid IS NOT DISTINCT FROM k.pid
    WHERE k.start_ns >= w.window_start_ns
),
own AS MATERIALIZED (
    SELECT * EXCLUDE (own)
    FROM numbered AS n
    ANTI JOIN left_out AS c ON c.report = n.report AND c.config = n.config
    WHERE n.own
),
firsts AS (
    SELECT
        w.report,
        if(w.steps IS NULL, 1, ceil(max(o.place) FILTER (o.inside) / w.steps)) AS last_place
    FROM own AS o
    JOIN windows AS w USING (report)
    GROUP BY w.report, w.steps
),
later AS (
    SELECT o.report, o.config, min(o.place) AS place
    FROM own AS o
    JOIN firsts AS f ON f.report = o.report AND o.place > f.last_place
    GROUP BY o.report, o.config
),
chosen AS (
    SELECT o.*, f.last_place
    FROM own AS o
    JOIN firsts AS f ON f.report = o.report AND o.place <= f.last_place
    UNION ALL
    SELECT o.*, f.last_place
    FROM own AS o
    JOIN later USING (report, config, place)
    JOIN firsts AS f USING (report)
),
-- Durations of a configuration repeat, so that there are far fewer durations than launches.
durations AS (
    SELECT report, config, dur_ns, sum(dur_ns) FILTER (inside)::BIGINT AS inside_ns
    FROM own
    GROUP BY report, config, dur_ns
),
gains AS (
    SELECT
        * EXCLUDE (inside_ns),
        sum(inside_ns) OVER (
            PARTITION BY report, config
            ORDER BY ln(greatest(dur_ns, 1))
            RANGE BETWEEN ln(threshold('plan.alike_times')) PRECEDING
                AND ln(threshold('plan.alike_times')) FOLLOWING
        )::BIGINT AS gain_ns
    FROM durations
)
SELECT
    w.report_id,
    c.config,
    c.place,
    c.start_ns,
    c.end_ns,
    c.inside,
    c.last_place,
    if(c.inside, g.gain_ns, NULL) AS gain_ns,
    lag(c.place, 1, 0) OVER (PARTITION BY c.report, c.config ORDER BY c.place) AS earlier_place
FROM chosen AS c
JOIN windows AS w USING (report)
JOIN gains AS g USING (report, config, dur_ns);
