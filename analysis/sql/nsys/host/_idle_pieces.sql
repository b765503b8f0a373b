-- Pieces of idle intervals by the stack that a thread had meanwhile. An interval after a wait for the GPU
-- belongs to the stack of this wait, which made the GPU run out of work: exactly if the wait has a backtrace,
-- else as an estimate from the waits that were sampled. Other intervals are divided among the samples that
-- stand for them. What no sample stands for, or the host did not cause, has no stack. `in_all` are the samples of an estimate, which all
-- windows share.
-- @materialize
CREATE VIEW _idle_pieces AS
WITH cells AS (
    SELECT report_id, pid, tid, start_ns, end_ns, stack_id, time_ns
    FROM _host_samples
    WHERE start_ns < end_ns
),
others AS (
    FROM _code_gaps
    WHERE wait_start_ns IS NULL AND by_host
),
tracks AS (
    SELECT DISTINCT track, report_id, pid, tid
    FROM others
),
-- A piece begins where the interval does, or where a sample does.
sampled AS (
    SELECT
        g.track, g.window_id, g.cause, c.stack_id, least(c.end_ns, g.end_ns) - g.start_ns AS ns,
        c.time_ns BETWEEN g.start_ns AND g.end_ns - 1 AS inside
    FROM others AS g
    ASOF JOIN cells AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns <= g.start_ns
    WHERE c.end_ns > g.start_ns
    UNION ALL
    SELECT
        g.track, g.window_id, g.cause, c.stack_id, least(c.end_ns, g.end_ns) - c.start_ns,
        c.time_ns BETWEEN g.start_ns AND g.end_ns - 1
    FROM (FROM cells JOIN tracks USING (report_id, pid, tid)) AS c
    ASOF JOIN others AS g
        ON g.track = c.track AND g.report_id = c.report_id AND g.pid = c.pid AND g.tid = c.tid
            AND g.start_ns < c.start_ns
    WHERE g.end_ns > c.start_ns
),
waits AS (
    FROM _code_gaps
    WHERE wait_start_ns IS NOT NULL
),
wait_tracks AS (
    SELECT DISTINCT track, report_id, pid, tid
    FROM waits
),
-- Stacks within waits.
seen AS (
    SELECT
        w.track, w.op_id, w.window_id, w.sync_name, w.end_ns - w.start_ns AS idle_ns,
        w.wait_end_ns - w.wait_start_ns AS wait_ns, s.end_ns - s.start_ns AS cell_ns, s.stack_id,
        s.correlation_id IS NOT NULL AS exact,
        count(*) OVER (PARTITION BY w.track, w.op_id) AS samples
    FROM (
        FROM _host_samples JOIN wait_tracks USING (report_id, pid, tid)
    ) AS s
    ASOF JOIN waits AS w
        ON w.track = s.track AND w.report_id = s.report_id AND w.pid = s.pid AND w.tid = s.tid
            AND w.wait_start_ns <= s.time_ns
    WHERE s.time_ns <= w.wait_end_ns
    QUALIFY exact = bool_or(exact) OVER (PARTITION BY w.track, w.op_id)
),
exact AS (
    SELECT track, op_id, window_id, any_value(stack_id) AS stack_id, any_value(idle_ns) AS ns
    FROM seen
    WHERE exact
    GROUP BY ALL
),
-- A wait that is shorter than the period is sampled with a probability of its length by the period.
weights AS (
    SELECT
        track, sync_name, stack_id, count(DISTINCT op_id) AS samples,
        sum(idle_ns / samples * greatest(1, cell_ns / greatest(wait_ns, 1))) AS weight
    FROM seen
    WHERE NOT exact
    GROUP BY ALL
),
summed AS (
    SELECT
        *,
        sum(weight) OVER so_far / sum(weight) OVER (PARTITION BY track, sync_name) AS until,
        row_number() OVER so_far AS place
    FROM weights
    WINDOW so_far AS (PARTITION BY track, sync_name ORDER BY stack_id)
),
parts AS (
    SELECT
        *,
        coalesce(lag(until) OVER (PARTITION BY track, sync_name ORDER BY place), 0) AS since,
        place = count(*) OVER (PARTITION BY track, sync_name) AS is_last
    FROM summed
),
unseen AS (
    SELECT track, window_id, sync_name, sum(end_ns - start_ns)::BIGINT AS ns
    FROM (FROM waits ANTI JOIN exact USING (track, op_id))
    GROUP BY ALL
),
estimated AS (
    SELECT
        u.track, u.window_id, p.stack_id, p.samples,
        (if(p.is_last, u.ns, floor(u.ns * p.until)) - floor(u.ns * p.since))::BIGINT AS ns
    FROM unseen AS u
    JOIN parts AS p ON p.track = u.track AND p.sync_name IS NOT DISTINCT FROM u.sync_name
),
pieces AS (
    SELECT
        track, window_id, cause, stack_id, sum(ns)::BIGINT AS ns, count_if(inside)::BIGINT AS samples,
        0 AS in_all
    FROM sampled
    GROUP BY ALL
    UNION ALL
    SELECT track, window_id, 'sync', stack_id, sum(ns)::BIGINT, count(*), 0
    FROM exact
    GROUP BY ALL
    UNION ALL
    SELECT track, window_id, 'sync', stack_id, sum(ns)::BIGINT, 0, sum(samples)::BIGINT
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
SELECT *, NULL AS reason
FROM pieces
WHERE ns > 0
UNION ALL
SELECT
    m.track, m.window_id, m.cause, NULL, m.ns - coalesce(f.ns, 0), 0, 0,
    if(m.by_host, 'not sampled', 'not caused by the host')
FROM missed AS m
LEFT JOIN found AS f USING (track, window_id, cause)
WHERE m.ns > coalesce(f.ns, 0);
