-- Idle intervals of the analyzed windows, with the thread whose stacks say what the host did: the thread that
-- launched the next operation, or the main thread of its process if the launching thread has no stack in the
-- middle of the interval, or waits for work while the main thread does not. Intervals after which the host
-- returned from a wait for the GPU have the start and end of this wait. Intervals that the host did not cause
-- have no thread.
-- @materialize
CREATE VIEW _code_gaps AS
WITH threads AS (
    SELECT report_id, pid, tid, count(*) AS samples, bool_and(source = 'py-spy') AS is_forked
    FROM _host_cells
    GROUP BY ALL
),
mains AS (
    FROM threads
    QUALIFY row_number() OVER (PARTITION BY report_id, pid ORDER BY tid != pid, samples DESC, tid) = 1
),
-- The only process with stacks, besides forked ones, speaks for operations without a known process.
alone AS (
    SELECT report_id, any_value(pid) AS pid, any_value(tid) AS tid
    FROM mains
    WHERE NOT is_forked
    GROUP BY report_id
    HAVING count(*) = 1
),
gaps AS (
    SELECT
        g.track, g.op_id, g.window_id, g.start_ns, g.end_ns, g.cause, g.sync_name, i.report_id, i.pid, i.tid,
        (g.start_ns + g.end_ns) // 2 AS middle_ns
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN _idle AS i USING (track, op_id)
    SEMI JOIN threads AS t ON t.report_id = i.report_id
),
cells AS (
    SELECT c.*, coalesce(s.is_idle AND s.awaits IS NULL, false) AS is_idle
    FROM _host_cells AS c
    LEFT JOIN _stack_code AS s USING (report_id, stack_id)
),
own AS (
    SELECT
        g.*,
        coalesce(c.end_ns > g.middle_ns, false) AS sampled,
        coalesce(c.is_idle, false) AS is_idle
    FROM gaps AS g
    ASOF LEFT JOIN cells AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns <= g.middle_ns
),
others AS (
    SELECT o.*, m.tid AS main_tid, coalesce(c.end_ns > o.middle_ns AND NOT c.is_idle, false) AS main_works
    FROM own AS o
    LEFT JOIN mains AS m ON m.report_id = o.report_id AND m.pid = o.pid
    ASOF LEFT JOIN cells AS c
        ON c.report_id = o.report_id AND c.pid = o.pid AND c.tid = m.tid AND c.start_ns <= o.middle_ns
)
SELECT
    o.track,
    o.op_id,
    o.window_id,
    o.start_ns,
    o.end_ns,
    o.cause,
    o.sync_name,
    o.report_id,
    coalesce(o.pid, a.pid) AS pid,
    is_host_cause(o.cause) AS by_host,
    CASE
        WHEN NOT by_host THEN NULL
        WHEN o.sampled AND NOT (o.is_idle AND o.main_works) THEN o.tid
        ELSE coalesce(o.main_tid, a.tid)
    END AS tid,
    CASE WHEN o.cause = 'sync' AND b.end_ns >= o.start_ns AND NOT b.loads THEN b.start_ns END
        AS wait_start_ns,
    CASE WHEN wait_start_ns IS NOT NULL THEN b.end_ns END AS wait_end_ns
FROM others AS o
LEFT JOIN alone AS a ON a.report_id = o.report_id AND o.pid IS NULL
ASOF LEFT JOIN _blocking_calls AS b
    ON b.report_id = o.report_id AND b.pid = o.pid AND b.tid = o.tid AND b.start_ns < o.start_ns;
