-- Idle intervals between operations of a device, split at the launching call of the next operation into the
-- time before, during and after it. The time before it is split into waiting, loading and the rest. Intervals
-- before operations that were launched before the device became idle are not split. The profiler's own time
-- is subtracted from each part.
-- @materialize
CREATE VIEW _gap_parts AS
WITH profiler AS (
    -- Overlapping overhead of several threads of a process counts once; overhead of another process does not
    -- delay it.
    SELECT report_id, pid, greatest(start_ns, max(end_ns) OVER earlier) AS start_ns, end_ns
    FROM nsys_overhead
    WHERE end_ns > start_ns
    WINDOW earlier AS (
        PARTITION BY report_id, pid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
profiled AS (
    SELECT g.*, greatest(g.start_ns, p.start_ns) AS from_ns, least(g.end_ns, p.end_ns) AS to_ns
    FROM _idle AS g
    JOIN profiler AS p
        ON p.report_id = g.report_id AND p.pid = g.pid AND p.start_ns < g.end_ns AND p.end_ns > g.start_ns
    WHERE p.end_ns > p.start_ns
),
disturbed AS (
    SELECT
        track,
        op_id,
        sum(overlap_ns(start_ns, call_ns, from_ns, to_ns)) AS before_ns,
        sum(overlap_ns(greatest(start_ns, api_start_ns), least(end_ns, api_end_ns), from_ns, to_ns))
            AS inside_ns,
        sum(to_ns - from_ns) AS all_ns
    FROM profiled
    GROUP BY track, op_id
),
-- Time in calls that wait or load: the thread's total up to the end minus its total up to the start. Threads
-- without such calls (often those of autograd) need not be sorted.
reached AS (
    SELECT g.track, g.op_id, g.report_id, g.pid, g.tid, g.start_ns, g.call_ns
    FROM (
        FROM _idle
        SEMI JOIN _blocking_calls USING (report_id, pid, tid)
        WHERE call_ns > start_ns
    ) AS g
    ASOF JOIN _blocking_calls AS b
        ON b.report_id = g.report_id AND b.pid = g.pid AND b.tid = g.tid AND b.start_ns < g.call_ns
    WHERE b.end_ns >= g.start_ns
),
moments AS (
    SELECT *, start_ns AS at_ns, -1 AS sign FROM reached
    UNION ALL
    SELECT *, call_ns, 1 FROM reached
    UNION ALL
    SELECT r.*, unnest([p.from_ns, least(p.to_ns, p.call_ns)]), unnest([1, -1])
    FROM reached AS r
    JOIN profiled AS p USING (track, op_id)
    WHERE p.from_ns < p.call_ns
),
blocked AS (
    SELECT
        m.track,
        m.op_id,
        sum(m.sign * (b.waited_until - if(b.loads, 0, greatest(0, b.end_ns - m.at_ns)))) AS wait_ns,
        sum(m.sign * (b.loaded_until - if(b.loads, greatest(0, b.end_ns - m.at_ns), 0))) AS loading_ns,
        arg_max(b.name, b.start_ns) FILTER (NOT b.loads AND b.end_ns >= m.start_ns) AS sync_name,
        -- The wait made the device run out of work; a wait that began later found it idle.
        coalesce(bool_or(NOT b.loads AND b.start_ns < m.start_ns AND b.end_ns >= m.start_ns), false)
            AS drained
    FROM moments AS m
    ASOF LEFT JOIN _blocking_calls AS b
        ON b.report_id = m.report_id AND b.pid = m.pid AND b.tid = m.tid AND b.start_ns < m.at_ns
    GROUP BY m.track, m.op_id
),
parts AS (
    SELECT
        g.*,
        b.sync_name,
        coalesce(b.drained, false) AS drained,
        coalesce(b.wait_ns, 0) AS wait_ns,
        coalesce(b.loading_ns, 0) AS loading_ns,
        coalesce(overlap_ns(g.start_ns, g.end_ns, g.start_ns, g.call_ns) - coalesce(d.before_ns, 0), 0)
            AS before_ns,
        coalesce(
            overlap_ns(g.start_ns, g.end_ns, g.api_start_ns, g.api_end_ns) - coalesce(d.inside_ns, 0), 0
        ) AS launch_api_ns,
        coalesce(d.all_ns, 0) AS profiler_overhead_ns
    FROM _idle AS g
    LEFT JOIN blocked AS b USING (track, op_id)
    LEFT JOIN disturbed AS d USING (track, op_id)
)
SELECT
    track,
    op_id,
    window_id,
    migrates,
    is_first,
    start_ns,
    end_ns,
    launched,
    api_start_ns IS NOT NULL AS called,
    sync_name,
    drained,
    wait_ns::BIGINT AS wait_ns,
    loading_ns::BIGINT AS loading_ns,
    (before_ns - wait_ns - loading_ns)::BIGINT AS own_ns,
    launch_api_ns::BIGINT AS launch_api_ns,
    profiler_overhead_ns::BIGINT AS profiler_overhead_ns,
    (end_ns - start_ns - before_ns - launch_api_ns - profiler_overhead_ns)::BIGINT AS rest_ns
FROM parts;
