-- Partition of every window, one row per category, in integer nanoseconds that add up to the window. Windows
-- with positive numbers add up to the whole device, category by category. Reports that lack most of the GPU
-- work have no rows.
-- @materialize
CREATE VIEW _budgets AS
WITH windows AS (
    SELECT track, window_id, name, start_ns AS window_start_ns, end_ns AS window_end_ns
    FROM _step_windows
    UNION ALL
    SELECT track, window_id, name, start_ns, end_ns
    FROM _chosen_windows
),
begun AS (
    -- Windows do not overlap, so an operation begins in exactly one window; few operations extend into the
    -- next.
    SELECT o.*, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns
    FROM _ops AS o
    JOIN _step_windows AS w ON w.track = o.track AND w.window_id = o.window_id
),
windowed AS (
    SELECT *
    FROM begun
    UNION ALL
    SELECT
        o.* EXCLUDE (window_start_ns, window_end_ns) REPLACE (w.window_id AS window_id),
        w.start_ns,
        w.end_ns
    FROM begun AS o
    JOIN _step_windows AS w ON w.track = o.track AND w.start_ns > o.start_ns AND w.start_ns < o.end_ns
    WHERE o.end_ns > o.window_end_ns
    UNION ALL
    SELECT o.* REPLACE (w.window_id AS window_id), w.start_ns, w.end_ns
    FROM _ops AS o
    JOIN _chosen_windows AS w
        ON w.track = o.track AND o.start_ns < w.end_ns AND (o.end_ns > w.start_ns OR o.start_ns = w.start_ns)
),
-- Operations clipped to the windows that they overlap. Windows with positive numbers are consecutive (steps
-- and the time between them); those with negative numbers were selected. From *_from on, an operation adds to
-- the union of all operations, of compute, or of kernels.
windowed_ops AS (
    SELECT
        track,
        window_id,
        class,
        greatest(start_ns, window_start_ns) AS start_ns,
        least(end_ns, window_end_ns) AS end_ns,
        greatest(start_ns, window_start_ns, busy_until) AS busy_from,
        greatest(start_ns, window_start_ns, compute_until) AS compute_from,
        greatest(start_ns, window_start_ns, kernels_until) AS kernels_from
    FROM windowed
),
busy AS (
    SELECT
        track,
        window_id,
        min(start_ns) AS first_ns,
        max(end_ns) AS last_ns,
        coalesce(sum(greatest(0, end_ns - compute_from)) FILTER (WHERE class = 'compute'), 0) AS compute,
        coalesce(sum(greatest(0, end_ns - kernels_from)) FILTER (WHERE class != 'transfer'), 0) AS kernels,
        sum(greatest(0, end_ns - busy_from)) AS everything
    FROM windowed_ops
    GROUP BY track, window_id
),
windowed_gaps AS (
    SELECT *
    FROM _gaps
    UNION ALL
    -- Only between operations of a selected window: the time before the first and after the last operation is
    -- edge.
    SELECT g.* REPLACE (w.window_id AS window_id)
    FROM _gaps AS g
    JOIN _chosen_windows AS w ON w.track = g.track AND w.start_ns <= g.start_ns AND g.end_ns < w.end_ns
    JOIN busy AS b ON b.track = g.track AND b.window_id = w.window_id
    WHERE g.start_ns >= b.first_ns
),
idle AS (
    SELECT
        track,
        window_id,
        sum(sync_ns) AS sync,
        sum(launch_gap_ns) AS launch_gap,
        sum(host_ns) AS host,
        sum(all_loading_ns) AS loading,
        sum(call_ns) AS launch_api,
        sum(queued_ns) AS queued,
        sum(kernel_gap_ns) AS kernel_gap,
        sum(device_wait_ns) AS device_wait,
        sum(building_ns) AS building,
        sum(no_work_ns) AS no_work,
        sum(profiler_overhead_ns) AS profiler_overhead,
        sum(unattributed_ns) AS unattributed,
        sum(dur_ns) AS everything
    FROM windowed_gaps
    GROUP BY track, window_id
),
joined AS (
    SELECT
        w.*,
        coalesce(m.compute_ns, 0) AS in_compute,
        coalesce(m.communication_ns, 0) AS in_communication,
        coalesce(m.alone_ns, 0) AS alone,
        coalesce(b.compute, 0) - in_compute AS compute,
        coalesce(b.kernels - b.compute, 0) - in_communication AS communication,
        in_compute + in_communication + alone AS migration,
        coalesce(b.everything - b.kernels, 0) - alone AS transfer,
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
        CASE
            -- A window that begins with work of the host leaves a part of the idle time before it, and
            -- the host may work after the last operation.
            WHEN w.window_id > 0 THEN greatest(0, w.window_end_ns - w.window_start_ns
                - coalesce(b.everything, 0) - coalesce(i.everything, 0))
            ELSE coalesce(
                (b.first_ns - w.window_start_ns) + (w.window_end_ns - b.last_ns),
                w.window_end_ns - w.window_start_ns
            )
        END AS edge,
        coalesce(i.unattributed, 0) AS unattributed
    FROM windows AS w
    LEFT JOIN busy AS b USING (track, window_id)
    LEFT JOIN idle AS i USING (track, window_id)
    LEFT JOIN _migration_times AS m ON m.track = w.track AND m.window_id = w.window_id AND NOT m.own
)
SELECT
    u.track,
    t.report_id,
    t.device,
    u.window_id,
    u.name,
    u.window_start_ns,
    u.window_end_ns,
    u.category,
    u.time_ns::BIGINT AS time_ns
FROM (
    UNPIVOT joined
    ON
        compute,
        communication,
        migration,
        transfer,
        sync,
        launch_gap,
        launch_api,
        queued,
        kernel_gap,
        device_wait,
        building,
        no_work,
        loading,
        host,
        profiler_overhead,
        edge,
        unattributed
    INTO NAME category VALUE time_ns
) AS u
JOIN _gpus AS t USING (track)
-- What the profiler did not record is not idle time.
ANTI JOIN (
    SELECT report_id FROM reports WHERE missed_pct > threshold('timeline.missed_pct')
) AS r ON r.report_id = t.report_id;
