-- Idle intervals of the analyzed windows, with the thread whose stacks say what the host did: the thread that
-- launched the next operation if it was sampled at the time, else the main thread of its process, which runs
-- the code that threads of libraries work for. Intervals after which the host returned from a wait for the
-- GPU have the start and end of this wait. Intervals that the host did not cause have no thread.
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
        g.track, g.op_id, g.window_id, g.start_ns, g.end_ns, g.cause, g.sync_name, i.report_id, i.pid, i.tid
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN _idle AS i USING (track, op_id)
    SEMI JOIN threads AS t ON t.report_id = i.report_id
),
own AS (
    SELECT g.*, coalesce(c.end_ns > g.start_ns, false) AS sampled
    FROM gaps AS g
    ASOF LEFT JOIN _host_cells AS c
        ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid AND c.start_ns < g.end_ns
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
    CASE WHEN NOT by_host THEN NULL WHEN o.sampled THEN o.tid ELSE coalesce(m.tid, a.tid) END AS tid,
    CASE WHEN o.cause = 'sync' AND b.end_ns >= o.start_ns AND NOT b.loads THEN b.start_ns END
        AS wait_start_ns,
    CASE WHEN wait_start_ns IS NOT NULL THEN b.end_ns END AS wait_end_ns
FROM own AS o
LEFT JOIN mains AS m ON m.report_id = o.report_id AND m.pid = o.pid
LEFT JOIN alone AS a ON a.report_id = o.report_id AND o.pid IS NULL
ASOF LEFT JOIN _blocking_calls AS b
    ON b.report_id = o.report_id AND b.pid = o.pid AND b.tid = o.tid AND b.start_ns < o.start_ns;
