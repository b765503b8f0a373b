-- Parts of the idle time of the analyzed windows by the stack that caused them. An interval after a wait for
-- the GPU belongs to the stack of the wait, which made the GPU run out of work. Other intervals belong to
-- what the thread executed meanwhile. Stacks that were traced are exact. Where stacks were sampled, only
-- samples within idle time count: an interval of at least one period is divided at the middle between its
-- samples. Shorter intervals, and waits, are an estimate from those of their kind that were sampled, each
-- weighted by the chance to sample it. What no sample stands for, or the host did not cause, has no stack.
-- `in_all` are the samples of an estimate, which all windows share.
-- @materialize
CREATE VIEW _idle_pieces AS
WITH threads AS (
    SELECT
        report_id, pid, tid, bool_and(is_traced(source)) AS traced,
        median(end_ns - start_ns)::BIGINT AS period_ns
    FROM _host_cells
    GROUP BY report_id, pid, tid
),
gaps AS (
    SELECT
        g.* EXCLUDE (by_host), t.traced, t.period_ns, g.end_ns - g.start_ns AS ns,
        coalesce(c.end_ns > g.start_ns, false) AS covered
    FROM (FROM _code_gaps WHERE by_host AND wait_start_ns IS NULL) AS g
    JOIN threads AS t USING (report_id, pid, tid)
    ASOF LEFT JOIN _host_cells AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns < g.end_ns
),
tracks AS (
    SELECT DISTINCT track, report_id, pid, tid
    FROM _code_gaps
    WHERE tid IS NOT NULL
),
-- A part of a traced interval begins where the interval does, or where a stack does.
traced AS (
    SELECT g.track, g.window_id, g.cause, c.stack_id, least(c.end_ns, g.end_ns) - g.start_ns AS ns
    FROM gaps AS g
    ASOF JOIN _host_cells AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns <= g.start_ns
    WHERE g.traced AND c.end_ns > g.start_ns
    UNION ALL
    SELECT g.track, g.window_id, g.cause, c.stack_id, least(c.end_ns, g.end_ns) - c.start_ns
    FROM (FROM _host_cells JOIN tracks USING (report_id, pid, tid)) AS c
    ASOF JOIN gaps AS g
        ON g.track = c.track AND g.report_id = c.report_id AND g.pid = c.pid AND g.tid = c.tid
            AND g.start_ns < c.start_ns
    WHERE g.traced AND g.end_ns > c.start_ns
),
inside AS (
    SELECT
        g.track, g.op_id, g.window_id, g.pid, g.tid, g.cause, g.ns, g.start_ns, g.end_ns, g.period_ns,
        c.stack_id, c.time_ns, c.start_ns AS from_ns, c.end_ns AS to_ns,
        row_number() OVER interval AS place,
        count(*) OVER (PARTITION BY g.track, g.op_id) AS samples
    FROM (FROM _host_cells JOIN tracks USING (report_id, pid, tid)) AS c
    ASOF JOIN gaps AS g
        ON g.track = c.track AND g.report_id = c.report_id AND g.pid = c.pid AND g.tid = c.tid
            AND g.start_ns <= c.time_ns
    WHERE NOT g.traced AND c.time_ns < g.end_ns
    WINDOW interval AS (PARTITION BY g.track, g.op_id ORDER BY c.time_ns)
),
sampled AS (
    SELECT
        track, window_id, cause, stack_id,
        least(end_ns, if(place = samples, time_ns + period_ns, to_ns))
        - greatest(start_ns, if(place = 1, time_ns - period_ns, from_ns)) AS ns
    FROM inside
    WHERE ns >= period_ns
),
waits AS (
    SELECT *, end_ns - start_ns AS ns, wait_end_ns - wait_start_ns AS wait_ns
    FROM _code_gaps
    WHERE wait_start_ns IS NOT NULL
),
-- The stack of a wait: from a backtrace, from a trace, or from samples.
stacks AS (
    SELECT report_id, pid, tid, time_ns, end_ns - start_ns AS cell_ns, stack_id, false AS exact
    FROM _host_cells
    WHERE NOT is_traced(source)
    UNION ALL
    SELECT report_id, pid, tid, time_ns, NULL, stack_id, true
    FROM host_samples
    WHERE correlation_id IS NOT NULL
),
seen AS (
    SELECT
        w.track, w.op_id, w.window_id, w.pid, w.tid, w.sync_name, w.ns, w.wait_ns, s.cell_ns, s.stack_id,
        s.exact,
        count(*) OVER (PARTITION BY w.track, w.op_id) AS samples
    FROM (FROM stacks JOIN tracks USING (report_id, pid, tid)) AS s
    ASOF JOIN waits AS w
        ON w.track = s.track AND w.report_id = s.report_id AND w.pid = s.pid AND w.tid = s.tid
            AND w.wait_start_ns <= s.time_ns
    WHERE s.time_ns <= w.wait_end_ns
    UNION ALL
    SELECT
        w.track, w.op_id, w.window_id, w.pid, w.tid, w.sync_name, w.ns, w.wait_ns, NULL, c.stack_id, true, 1
    FROM waits AS w
    ASOF JOIN _host_cells AS c
        ON c.report_id = w.report_id AND c.pid = w.pid AND c.tid = w.tid AND c.start_ns <= w.wait_start_ns
    WHERE is_traced(c.source) AND c.end_ns > w.wait_start_ns
),
best AS (
    FROM seen
    QUALIFY exact = bool_or(exact) OVER (PARTITION BY track, op_id)
),
exact AS (
    SELECT track, op_id, window_id, any_value(stack_id) AS stack_id, any_value(ns) AS ns
    FROM best
    WHERE exact
    GROUP BY track, op_id, window_id
),
-- What was too short to be sampled each time has its length by the period as the chance to be sampled.
weights AS (
    SELECT
        track, pid, tid, 'sync' AS cause, sync_name, stack_id, count(DISTINCT op_id) AS samples,
        sum(ns / samples * greatest(1, cell_ns / greatest(wait_ns, 1))) AS weight
    FROM best
    WHERE NOT exact
    GROUP BY ALL
    UNION ALL
    SELECT track, pid, tid, cause, 'none', stack_id, count(*), count(*)
    FROM inside
    WHERE ns < period_ns
    GROUP BY ALL
),
summed AS (
    SELECT
        *,
        sum(weight) OVER so_far / sum(weight) OVER (PARTITION BY track, pid, tid, cause, sync_name) AS until,
        row_number() OVER so_far AS place
    FROM weights
    WINDOW so_far AS (PARTITION BY track, pid, tid, cause, sync_name ORDER BY stack_id)
),
shares AS (
    SELECT
        *,
        coalesce(lag(until) OVER (PARTITION BY track, pid, tid, cause, sync_name ORDER BY place), 0) AS since,
        place = count(*) OVER (PARTITION BY track, pid, tid, cause, sync_name) AS is_last
    FROM summed
),
unseen AS (
    SELECT track, window_id, pid, tid, cause, sync_name, sum(ns)::BIGINT AS ns
    FROM (FROM waits ANTI JOIN exact USING (track, op_id))
    GROUP BY ALL
    UNION ALL
    SELECT track, window_id, pid, tid, cause, 'none', sum(ns)::BIGINT
    FROM gaps
    WHERE NOT traced AND covered AND ns < period_ns
    GROUP BY ALL
),
estimated AS (
    SELECT
        u.track, u.window_id, u.cause, s.stack_id, s.samples,
        (if(s.is_last, u.ns, floor(u.ns * s.until)) - floor(u.ns * s.since))::BIGINT AS ns
    FROM unseen AS u
    JOIN shares AS s
        ON s.track = u.track AND s.pid IS NOT DISTINCT FROM u.pid AND s.tid IS NOT DISTINCT FROM u.tid
            AND s.cause = u.cause AND s.sync_name IS NOT DISTINCT FROM u.sync_name
),
pieces AS (
    SELECT track, window_id, cause, stack_id, sum(ns)::BIGINT AS ns, count(*) AS samples, 0 AS in_all
    FROM (FROM traced UNION ALL FROM sampled)
    GROUP BY ALL
    UNION ALL
    SELECT track, window_id, 'sync', stack_id, sum(ns)::BIGINT, count(*), 0
    FROM exact
    GROUP BY ALL
    UNION ALL
    SELECT track, window_id, cause, stack_id, sum(ns)::BIGINT, 0, sum(samples)::BIGINT
    FROM estimated
    GROUP BY ALL
),
missed AS (
    SELECT track, window_id, cause, by_host, sum(end_ns - start_ns)::BIGINT AS ns
    FROM _code_gaps
    GROUP BY ALL
),
found AS (
    SELECT track, window_id, cause, sum(ns)::BIGINT AS ns
    FROM pieces
    GROUP BY ALL
)
SELECT *, if(stack_id IS NULL, 'no frames recorded', NULL) AS reason
FROM pieces
WHERE ns > 0
UNION ALL
SELECT
    m.track, m.window_id, m.cause, NULL, m.ns - coalesce(f.ns, 0), 0, 0,
    if(m.by_host, 'not sampled', 'not caused by the host')
FROM missed AS m
LEFT JOIN found AS f USING (track, window_id, cause)
WHERE m.ns > coalesce(f.ns, 0);
