-- Kernel launches on each GPU: duration of the launching calls, queueing time, number of short kernels,
-- and the idle time that CUDA graphs would remove. A long queue is not a problem, because it means that
-- the host is ahead of a busy GPU. Launch overhead is the idle time before, during and after launching
-- calls.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- kernels BIGINT: number of kernels
-- calls BIGINT: number of launching calls; one call launches all kernels of a CUDA graph
-- launches_per_ms DOUBLE: number of launching calls per millisecond of the window
-- api_med_ns DOUBLE: median duration of a launching call, ns
-- api_ns BIGINT: total duration of the launching calls, ns
-- queue_med_ns DOUBLE: median time that queued kernels wait between the return of the launching call and
--   their start, ns
-- short_kernels BIGINT: number of kernels shorter than 10 us
-- short_kernels_pct DOUBLE: short kernels as a percentage of all kernels
-- short_time_pct DOUBLE: short kernels' time as a percentage of the kernel time
-- graph_launches BIGINT: number of CUDA graph launches that were traced as a whole, which hides the
--   graph's kernels
-- graph_kernels BIGINT: number of kernels in CUDA graphs
-- launch_overhead_ns BIGINT: idle time of the GPU before, during and after launching calls, ns
-- graphs_save_pct DOUBLE: percentage of the window that CUDA graphs would save: launch overhead before
--   operations outside graphs, except before copies to the host, because a graph would have to end there
CREATE VIEW launch_summary AS
WITH ops AS (
    SELECT * EXCLUDE (report_id, device), end_ns - start_ns AS dur_ns
    FROM _analysed_launches
    WHERE pid IS NOT NULL AND device IS NOT NULL
),
calls AS (
    SELECT track, pid, correlation_id, max(api_end_ns - api_start_ns) AS api_ns
    FROM ops
    WHERE api_start_ns IS NOT NULL
    GROUP BY track, pid, correlation_id
),
api AS (
    SELECT track, count(*) AS calls, median(api_ns) AS api_med_ns, sum(api_ns)::BIGINT AS api_ns
    FROM calls
    GROUP BY track
),
eager AS (
    SELECT t.report_id, t.device, sum(g.launch_gap_ns + g.call_ns + g.queued_ns)::BIGINT AS ns
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE l.kind != 'graph'
        AND l.graph_node_id IS NULL
        AND NOT starts_with(l.name, '[CUDA memcpy Device-to-Host')
    GROUP BY t.report_id, t.device
),
overhead AS (
    SELECT
        report_id,
        device,
        sum(time_ns)::BIGINT AS ns,
        any_value(window_ns) AS window_ns
    FROM gpu_time_budget
    WHERE timeline_bound(category) = 'launch_overhead'
    GROUP BY report_id, device
),
kernels AS (
    SELECT
        track,
        count(*) FILTER (kind = 'kernel') AS kernels,
        count(*) FILTER (kind = 'kernel' AND dur_ns < threshold('timeline.short_kernel_ns')) AS short_kernels,
        sum(dur_ns) FILTER (kind = 'kernel' AND dur_ns < threshold('timeline.short_kernel_ns')) AS short_ns,
        sum(dur_ns) FILTER (kind = 'kernel') AS kernel_ns,
        count(*) FILTER (kind = 'graph') AS graph_launches,
        count(*) FILTER (kind = 'kernel' AND graph_node_id IS NOT NULL) AS graph_kernels,
        median(start_ns - api_end_ns) FILTER (start_ns >= api_end_ns) AS queue_med_ns
    FROM ops
    GROUP BY track
)
SELECT
    t.report_id,
    t.device,
    k.kernels,
    a.calls,
    a.calls / nullif(o.window_ns / 1e6, 0) AS launches_per_ms,
    a.api_med_ns,
    a.api_ns,
    k.queue_med_ns,
    k.short_kernels,
    100.0 * k.short_kernels / nullif(k.kernels, 0) AS short_kernels_pct,
    100.0 * coalesce(k.short_ns, 0) / nullif(k.kernel_ns, 0) AS short_time_pct,
    k.graph_launches,
    k.graph_kernels,
    o.ns AS launch_overhead_ns,
    CASE
        WHEN k.kernels > 0 THEN 100.0 * coalesce(e.ns, 0) / nullif(o.window_ns, 0)
    END AS graphs_save_pct
FROM kernels AS k
JOIN _gpus AS t USING (track)
JOIN overhead AS o USING (report_id, device)
LEFT JOIN api AS a USING (track)
LEFT JOIN eager AS e USING (report_id, device)
ORDER BY t.report_id, t.device;
