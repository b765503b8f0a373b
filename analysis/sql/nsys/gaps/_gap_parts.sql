-- Idle intervals between operations of a device, split at the launching call of the next operation:
-- before it, during it, after it.  The profiler's own time is taken out of each part.
-- @materialize
CREATE VIEW _gap_parts AS
WITH gaps AS (
    SELECT
        t.report_id, o.track, o.busy_until AS start_ns, o.start_ns AS end_ns,
        o.pid, o.tid, o.op_id, o.api_start_ns, o.api_end_ns,
        -- Idle time before the first operation of a window belongs to the window before.
        o.window_id - (o.busy_until < w.start_ns)::INTEGER AS window_id
    FROM _ops AS o
    JOIN _gpus AS t USING (track)
    JOIN _step_windows AS w ON w.track = o.track AND w.window_id = o.window_id
    WHERE o.start_ns > o.busy_until
),
waited AS (
    SELECT g.track, g.op_id, s.name AS sync_name
    -- Threads that never wait, such as autograd's, need not be sorted.
    FROM (FROM gaps SEMI JOIN _sync_calls USING (report_id, pid, tid)) AS g
    ASOF JOIN _sync_calls AS s
        ON s.report_id = g.report_id AND s.pid = g.pid AND s.tid = g.tid AND s.start_ns < g.api_start_ns
    WHERE s.end_ns >= g.start_ns
),
profiler AS (
    -- Overlapping overhead of several threads of a process counts once; that of another process does
    -- not delay it.
    SELECT report_id, pid, greatest(start_ns, max(end_ns) OVER earlier) AS start_ns, end_ns
    FROM nsys_overhead
    WHERE end_ns > start_ns
    WINDOW earlier AS (
        PARTITION BY report_id, pid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
disturbed AS (
    SELECT
        g.track,
        g.op_id,
        sum(overlap_ns(g.start_ns, least(g.end_ns, g.api_start_ns), p.start_ns, p.end_ns)) AS before_ns,
        sum(
            overlap_ns(
                greatest(g.start_ns, g.api_start_ns),
                least(g.end_ns, g.api_end_ns),
                p.start_ns,
                p.end_ns
            )
        ) AS inside_ns,
        sum(overlap_ns(g.start_ns, g.end_ns, p.start_ns, p.end_ns)) AS all_ns
    FROM gaps AS g
    JOIN profiler AS p
        ON p.report_id = g.report_id AND p.pid = g.pid AND p.start_ns < g.end_ns AND p.end_ns > g.start_ns
    GROUP BY g.track, g.op_id
),
parts AS (
    SELECT
        g.*,
        w.sync_name,
        overlap_ns(g.start_ns, g.end_ns, g.start_ns, g.api_start_ns) - coalesce(d.before_ns, 0) AS before_ns,
        overlap_ns(
            g.start_ns,
            g.end_ns,
            g.api_start_ns,
            g.api_end_ns
        ) - coalesce(d.inside_ns, 0) AS launch_api_ns,
        coalesce(d.all_ns, 0) AS profiler_overhead_ns
    FROM gaps AS g
    LEFT JOIN waited AS w USING (track, op_id)
    LEFT JOIN disturbed AS d USING (track, op_id)
)
SELECT
    track,
    op_id,
    window_id,
    start_ns,
    end_ns,
    sync_name,
    before_ns::BIGINT AS before_ns,
    launch_api_ns::BIGINT AS launch_api_ns,
    CASE
        WHEN api_start_ns IS NOT NULL
            THEN end_ns - start_ns - before_ns - launch_api_ns - profiler_overhead_ns
    END::BIGINT AS queued_ns,
    profiler_overhead_ns::BIGINT AS profiler_overhead_ns
FROM parts;
