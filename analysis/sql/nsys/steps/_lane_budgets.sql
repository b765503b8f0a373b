-- Partition of each window of each process on GPUs that several processes share, in integer nanoseconds that
-- add up to the window: work of the process itself, time in which only other processes work, and idle time of
-- the GPU. The activity of the process while the GPU was idle before another process's work is unknown.
-- @materialize
CREATE VIEW _lane_budgets AS
WITH windows AS (
    SELECT track, window_id, lane_pid AS pid, start_ns, end_ns
    FROM _lane_windows
    SEMI JOIN (SELECT track FROM _tracks GROUP BY track HAVING count(DISTINCT pid) > 1) USING (track)
    WHERE lane_pid IS NOT NULL
),
ops AS (
    SELECT
        track,
        pid,
        class,
        start_ns,
        end_ns,
        max(end_ns) OVER earlier AS busy_until,
        max(CASE WHEN class = 'compute' THEN end_ns END) OVER earlier AS compute_until,
        max(CASE WHEN class != 'transfer' THEN end_ns END) OVER earlier AS kernels_until
    FROM (FROM _ops SEMI JOIN windows USING (track, pid))
    WINDOW earlier AS (
        PARTITION BY track, pid
        ORDER BY start_ns, end_ns, op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
long AS (FROM windows WHERE end_ns > start_ns),
begun AS (
    SELECT o.*, w.window_id, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns
    FROM ops AS o
    ASOF JOIN long AS w ON w.track = o.track AND w.pid = o.pid AND w.start_ns <= o.start_ns
),
windowed AS (
    SELECT *
    FROM begun
    UNION ALL
    SELECT o.* EXCLUDE (window_id, window_start_ns, window_end_ns), w.window_id, w.start_ns, w.end_ns
    FROM begun AS o
    JOIN long AS w
        ON w.track = o.track AND w.pid = o.pid AND w.start_ns > o.start_ns AND w.start_ns < o.end_ns
    WHERE o.end_ns > o.window_end_ns
),
clipped AS (
    SELECT
        track, window_id, class, busy_until, compute_until, kernels_until,
        greatest(start_ns, window_start_ns) AS start_ns,
        least(end_ns, window_end_ns) AS end_ns
    FROM windowed
),
own AS (
    SELECT
        track,
        window_id,
        sum(beyond_ns(start_ns, end_ns, compute_until)) FILTER (class = 'compute') AS compute,
        sum(beyond_ns(start_ns, end_ns, kernels_until)) FILTER (class != 'transfer') AS kernels,
        sum(beyond_ns(start_ns, end_ns, busy_until)) AS everything
    FROM clipped
    GROUP BY track, window_id
),
-- Windows of a process begin and end with its own operations, not within an idle interval.
gaps AS (
    SELECT g.*, l.pid, o.pid IS NOT DISTINCT FROM l.pid AS before_own
    FROM _gaps AS g
    JOIN (SELECT DISTINCT track, pid FROM windows) AS l USING (track)
    JOIN _ops AS o USING (track, op_id)
),
idle AS (
    SELECT
        w.track,
        w.window_id,
        sum(g.sync_ns) FILTER (before_own) AS sync,
        sum(g.launch_gap_ns) FILTER (before_own) AS launch_gap,
        sum(g.call_ns) FILTER (before_own) AS launch_api,
        sum(g.queued_ns) FILTER (before_own) AS queued,
        sum(g.kernel_gap_ns) FILTER (before_own) AS kernel_gap,
        sum(g.device_wait_ns) FILTER (before_own) AS device_wait,
        sum(g.building_ns) FILTER (before_own) AS building,
        sum(g.no_work_ns) FILTER (before_own) AS no_work,
        sum(g.all_loading_ns) FILTER (before_own) AS loading,
        sum(g.host_ns) FILTER (before_own) AS host,
        sum(g.profiler_overhead_ns) FILTER (before_own) AS profiler_overhead,
        sum(if(before_own, g.unattributed_ns, g.dur_ns)) AS unattributed,
        sum(g.dur_ns) AS everything
    FROM gaps AS g
    ASOF JOIN long AS w ON w.track = g.track AND w.pid = g.pid AND w.start_ns <= g.start_ns
    GROUP BY w.track, w.window_id
),
joined AS (
    SELECT
        w.track,
        w.window_id,
        coalesce(o.compute, 0) - coalesce(m.compute_ns, 0) AS compute,
        coalesce(o.kernels, 0) - coalesce(o.compute, 0) - coalesce(m.communication_ns, 0) AS communication,
        coalesce(m.compute_ns + m.communication_ns + m.alone_ns, 0) AS migration,
        coalesce(o.everything - coalesce(o.kernels, 0), 0) - coalesce(m.alone_ns, 0) AS transfer,
        w.end_ns - w.start_ns - coalesce(o.everything, 0) - coalesce(i.everything, 0) AS other_process,
        coalesce(i.sync, 0) AS sync,
        coalesce(i.launch_gap, 0) AS launch_gap,
        coalesce(i.launch_api, 0) AS launch_api,
        coalesce(i.queued, 0) AS queued,
        coalesce(i.kernel_gap, 0) AS kernel_gap,
        coalesce(i.device_wait, 0) AS device_wait,
        coalesce(i.building, 0) AS building,
        coalesce(i.no_work, 0) AS no_work,
        coalesce(i.loading, 0) AS loading,
        coalesce(i.host, 0) AS host,
        coalesce(i.profiler_overhead, 0) AS profiler_overhead,
        0 AS edge,
        coalesce(i.unattributed, 0) AS unattributed
    FROM windows AS w
    LEFT JOIN own AS o USING (track, window_id)
    LEFT JOIN idle AS i USING (track, window_id)
    LEFT JOIN _migration_times AS m ON m.track = w.track AND m.window_id = w.window_id AND m.own
)
SELECT track, window_id, category, time_ns::BIGINT AS time_ns
FROM (UNPIVOT joined ON COLUMNS(* EXCLUDE (track, window_id)) INTO NAME category VALUE time_ns);
