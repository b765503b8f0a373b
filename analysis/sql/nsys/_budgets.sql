-- The partition of every window, a row a category, in integer nanoseconds that add up to the window.
-- Computed once.
CREATE VIEW _budgets AS
WITH windows AS (
    SELECT track, 0 AS window_id, NULL::VARCHAR AS name, min(start_ns) AS window_start_ns, max(end_ns) AS window_end_ns
    FROM _gpu_ops
    GROUP BY track
    UNION ALL
    SELECT track, window_id, name, start_ns, end_ns
    FROM _step_windows
),
busy AS (
    SELECT
        track,
        window_id,
        min(start_ns) AS first_ns,
        max(end_ns) AS last_ns,
        coalesce(sum(beyond_ns(start_ns, end_ns, compute_until)) FILTER (WHERE class = 1), 0) AS compute,
        coalesce(sum(beyond_ns(start_ns, end_ns, kernels_until)) FILTER (WHERE class < 3), 0) AS kernels,
        sum(beyond_ns(start_ns, end_ns, busy_until)) AS everything
    FROM _windowed_ops
    GROUP BY track, window_id
),
idle AS (
    SELECT
        track,
        window_id,
        sum(before_ns) FILTER (WHERE before_cause = 'sync') AS sync,
        sum(before_ns) FILTER (WHERE before_cause = 'launch_gap') AS launch_gap,
        sum(before_ns) FILTER (WHERE before_cause = 'host') AS host,
        sum(launch_api_ns) AS launch_api,
        sum(queued_ns) AS queued,
        sum(profiler_overhead_ns) AS profiler_overhead,
        sum(unattributed_ns) AS unattributed
    FROM _gaps
    GROUP BY track, window_id
),
joined AS (
    SELECT
        w.*,
        b.compute,
        b.kernels - b.compute AS communication,
        b.everything - b.kernels AS transfer,
        coalesce(i.sync, 0) AS sync,
        coalesce(i.launch_gap, 0) AS launch_gap,
        coalesce(i.launch_api, 0) AS launch_api,
        coalesce(i.queued, 0) AS queued,
        coalesce(i.host, 0) AS host,
        coalesce(i.profiler_overhead, 0) AS profiler_overhead,
        (b.first_ns - w.window_start_ns) + (w.window_end_ns - b.last_ns) AS edge,
        coalesce(i.unattributed, 0) AS unattributed
    FROM windows AS w
    JOIN busy AS b USING (track, window_id)
    LEFT JOIN idle AS i USING (track, window_id)
)
SELECT t.report_id, t.device, u.window_id, u.name, u.window_start_ns, u.window_end_ns, u.category, u.time_ns::BIGINT AS time_ns
FROM (
    UNPIVOT joined
    ON compute, communication, transfer, sync, launch_gap, launch_api, queued, host, profiler_overhead, edge, unattributed
    INTO NAME category VALUE time_ns
) AS u
JOIN (SELECT DISTINCT track, report_id, device FROM _tracks) AS t USING (track);
