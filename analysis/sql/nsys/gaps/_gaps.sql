-- Idle intervals with the time of each cause, ns, and the cause of the largest part.
-- @materialize
CREATE VIEW _gaps AS
WITH long AS (
    SELECT g.track, g.op_id, l.report_id, l.pid, coalesce(l.demangled, l.name) AS name, l.api_start_ns
    FROM _gap_parts AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE g.launch_api_ns > 0
        AND l.kind IN ('kernel', 'graph')
        AND coalesce(l.api_end_ns, l.start_ns) - l.api_start_ns >= threshold('timeline.loading_ns')
),
uses AS (
    SELECT l.report_id, l.pid, coalesce(l.demangled, l.name) AS name,
        min(coalesce(l.api_start_ns, l.start_ns)) AS first_ns
    FROM launches AS l
    WHERE l.kind IN ('kernel', 'graph') AND coalesce(l.demangled, l.name) IN (SELECT name FROM long)
    GROUP BY ALL
),
-- Operations after an idle interval whose launching call was slow because it was the first use of a kernel or
-- graph in its process: the driver loads the code.
loading_launches AS (
    SELECT o.track, o.op_id
    FROM long AS o
    JOIN uses AS u
        ON u.report_id = o.report_id AND u.pid IS NOT DISTINCT FROM o.pid AND u.name = o.name
            AND u.first_ns = o.api_start_ns
),
judged AS (
    SELECT
        p.*,
        f.op_id IS NOT NULL AS first_use,
        b.op_id IS NOT NULL AS rebuilt,
        coalesce(c.tried, false) AS tried,
        if(rebuilt, p.own_ns, least(coalesce(c.built_ns, 0), p.own_ns)) AS compiling_ns,
        if(rebuilt, p.loading_ns, least(coalesce(c.built_ns, 0) - compiling_ns, p.loading_ns))
            AS reloading_ns,
        if(p.rest_ns > threshold('timeline.device_wait_ns') AND (p.called OR p.launched), p.rest_ns, 0)
            AS waits_ns,
        -- What a stream did before its first operation that was recorded is unknown: a profiler that starts
        -- later does not record work that was issued before.
        if(p.is_first, 0, waits_ns) AS device_wait_ns,
        p.rest_ns - waits_ns AS late_ns,
        least(coalesce(w.os_ns, 0), p.own_ns - compiling_ns) AS no_work_ns,
        CASE
            WHEN rebuilt THEN 'building'
            WHEN p.own_ns - compiling_ns > l.limit_ns AND s.op_id IS NULL THEN 'host'
            WHEN p.drained THEN 'sync'
            ELSE 'launch_gap'
        END AS own_cause
    FROM _gap_parts AS p
    JOIN _launch_gap_limits AS l USING (track)
    LEFT JOIN loading_launches AS f USING (track, op_id)
    LEFT JOIN _slow_launches AS s USING (track, op_id)
    LEFT JOIN _rebuilt AS b USING (track, op_id)
    LEFT JOIN _built AS c USING (track, op_id)
    LEFT JOIN _work_waits AS w USING (track, op_id)
),
split AS (
    -- The launch latency is only visible because the wait before it made the device run out of work.
    SELECT
        *,
        own_ns - compiling_ns - no_work_ns AS working_ns,
        if(tried, 0, wait_ns)
        + CASE WHEN own_cause = 'sync' THEN working_ns ELSE 0 END
        + CASE WHEN drained AND called AND NOT first_use AND NOT tried THEN launch_api_ns ELSE 0 END
        + CASE WHEN drained AND called AND NOT tried THEN late_ns ELSE 0 END AS sync_ns,
        CASE WHEN own_cause = 'launch_gap' THEN working_ns ELSE 0 END AS launch_gap_ns,
        -- The host need not call CUDA for pages to migrate.
        CASE
            WHEN migrates AND NOT called AND NOT launched THEN late_ns
            WHEN own_cause = 'host' THEN working_ns
            ELSE 0
        END AS host_ns,
        compiling_ns + reloading_ns
        + CASE WHEN tried THEN wait_ns + launch_api_ns + if(called, late_ns, 0) ELSE 0 END AS building_ns,
        loading_ns - reloading_ns + CASE WHEN first_use AND NOT tried THEN launch_api_ns ELSE 0 END
            AS all_loading_ns,
        CASE WHEN first_use OR drained OR tried THEN 0 ELSE launch_api_ns END AS call_ns,
        CASE WHEN called AND NOT drained AND NOT tried THEN late_ns ELSE 0 END AS queued_ns,
        CASE WHEN launched THEN late_ns ELSE 0 END AS kernel_gap_ns,
        CASE WHEN NOT called AND NOT launched AND NOT migrates THEN late_ns ELSE 0 END
        + waits_ns - device_wait_ns AS unattributed_ns
    FROM judged
)
SELECT
    track, op_id, window_id, migrates, start_ns, end_ns, end_ns - start_ns AS dur_ns, called, sync_name,
    own_ns, wait_ns, loading_ns, launch_api_ns, rest_ns,
    sync_ns, launch_gap_ns, host_ns, building_ns, no_work_ns, all_loading_ns, call_ns, queued_ns,
    kernel_gap_ns, device_wait_ns, profiler_overhead_ns, unattributed_ns,
    CASE greatest(
        sync_ns, launch_gap_ns, host_ns, building_ns, no_work_ns, all_loading_ns, call_ns, queued_ns,
        kernel_gap_ns, device_wait_ns, profiler_overhead_ns, unattributed_ns
    )
        WHEN unattributed_ns THEN 'unattributed'
        WHEN kernel_gap_ns THEN 'kernel_gap'
        WHEN device_wait_ns THEN 'device_wait'
        WHEN no_work_ns THEN 'no_work'
        WHEN building_ns THEN 'building'
        WHEN host_ns THEN 'host'
        WHEN sync_ns THEN 'sync'
        WHEN launch_gap_ns THEN 'launch_gap'
        WHEN all_loading_ns THEN 'loading'
        WHEN call_ns THEN 'launch_api'
        WHEN queued_ns THEN 'queued'
        ELSE 'profiler_overhead'
    END AS cause
FROM split;
