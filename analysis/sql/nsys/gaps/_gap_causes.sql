-- Idle intervals that are longer than a launch gap or end with a migration of unified memory, with the
-- activity of their largest part: a call, a range, or the activity of another thread; if nothing is known,
-- the next operation. Waits on the device have the calls that ordered the next operation behind other work.
-- Counters in range names are replaced by * (range_stem).
-- @materialize
CREATE VIEW _gap_causes AS
WITH open AS (
    SELECT
        g.track,
        g.op_id,
        g.cause,
        g.dur_ns,
        g.own_ns + g.wait_ns + g.loading_ns >= g.dur_ns / 2 AS before,
        CASE WHEN g.cause = 'sync' THEN g.sync_name END AS sync_name,
        CASE WHEN 2 * n.api_ns >= n.dur_ns THEN n.api_name END AS api_name,
        CASE WHEN 2 * n.os_ns >= n.dur_ns THEN n.os_name END AS os_name,
        CASE WHEN NOT is_step(n.range_name) THEN n.range_name END AS range_name,
        d.calls AS ordering,
        n.other_kind,
        n.other_name,
        n.range_name AS step_name,
        l.name AS next_name
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    LEFT JOIN _gap_names AS n USING (track, op_id)
    LEFT JOIN _dependencies AS d USING (track, op_id)
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE n.op_id IS NOT NULL OR g.device_wait_ns > 0
)
SELECT
    track,
    op_id,
    cause,
    dur_ns,
    CASE
        WHEN cause = 'device_wait' AND ordering IS NOT NULL THEN 'ordering call'
        WHEN cause = 'device_wait' THEN 'next operation'
        WHEN NOT before THEN NULL
        WHEN sync_name IS NOT NULL OR api_name IS NOT NULL THEN 'CUDA call'
        WHEN range_name IS NOT NULL THEN 'range'
        WHEN NOT is_waiting(os_name) THEN 'OS call'
        WHEN other_kind = 'range' THEN 'range of another thread'
        WHEN other_kind IS NOT NULL THEN 'OS call of another thread'
        WHEN os_name IS NOT NULL THEN 'OS call'
        WHEN next_name IS NOT NULL THEN 'next operation'
    END AS kind,
    CASE
        WHEN kind IS NULL THEN NULL
        WHEN kind = 'ordering call' THEN ordering
        WHEN kind = 'CUDA call' THEN coalesce(sync_name, api_name)
        WHEN kind = 'OS call' THEN os_name
        WHEN kind = 'next operation' THEN next_name
        ELSE range_stem(if(kind = 'range', range_name, other_name))
    END AS name,
    CASE WHEN before THEN range_stem(coalesce(range_name, step_name)) END AS nvtx_range
FROM open
UNION ALL
-- Nothing launches a migration, so the thread that accesses the pages is unknown.
SELECT g.track, g.op_id, g.cause, g.dur_ns, 'next operation', l.name, NULL
FROM (FROM _gaps WHERE migrates) AS g
SEMI JOIN _analysed USING (track, window_id)
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id;
