-- Launching on each GPU: how long the calls take, how long work waits, how many kernels are short,
-- and what CUDA graphs could save at most.  A long queue is not a defect: it means that the host is
-- ahead of a busy GPU; what launching costs is the idle time before and inside of calls.
-- @materialize
--
-- report_id: report
-- device: GPU number of the machine
-- kernels: kernels
-- calls: launching calls; a CUDA graph launches many kernels with one
-- launches_per_ms: calls in a millisecond of the window
-- api_med_ns: median time of a launching call, ns
-- queue_med_ns: median time from the call's return to the start, of those that waited, ns
-- short_kernels: kernels under 10 us
-- short_kernels_pct: of all kernels, %
-- short_time_pct: of all kernel time, %
-- graph_launches: launches of CUDA graphs traced as a whole; their kernels are hidden
-- graph_kernels: kernels that came from CUDA graphs
-- launch_overhead_ns: idle time between, inside and behind launching calls, ns
-- graphs_save_pct: share of the window that CUDA graphs could save at most: the launch overhead of
--   work outside of graphs, %
CREATE VIEW launch_summary AS
WITH ops AS (
    SELECT t.report_id, t.device, l.*  EXCLUDE (report_id, device), l.end_ns - l.start_ns AS dur_ns
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
),
calls AS (
    SELECT report_id, device, pid, correlation_id, max(api_end_ns - api_start_ns) AS api_ns
    FROM ops
    WHERE api_start_ns IS NOT NULL
    GROUP BY report_id, device, pid, correlation_id
),
api AS (
    SELECT report_id, device, count(*) AS calls, median(api_ns) AS api_med_ns
    FROM calls
    GROUP BY report_id, device
),
overhead AS (
    SELECT
        report_id,
        device,
        sum(time_ns)::BIGINT AS ns,
        100.0 * sum(time_ns) / nullif(any_value(window_end_ns - window_start_ns), 0) AS pct,
        any_value(window_end_ns - window_start_ns) AS window_ns
    FROM gpu_time_budget
    WHERE timeline_bound(category) = 'launch_overhead'
    GROUP BY report_id, device
),
kernels AS (
    SELECT
        report_id,
        device,
        count(*) FILTER (kind = 'kernel') AS kernels,
        count(*) FILTER (kind = 'kernel' AND dur_ns < threshold('timeline.short_kernel_ns')) AS short_kernels,
        sum(dur_ns) FILTER (kind = 'kernel' AND dur_ns < threshold('timeline.short_kernel_ns')) AS short_ns,
        sum(dur_ns) FILTER (kind = 'kernel') AS kernel_ns,
        count(*) FILTER (kind = 'graph') AS graph_launches,
        count(*) FILTER (kind = 'kernel' AND graph_node_id IS NOT NULL) AS graph_kernels,
        median(start_ns - api_end_ns) FILTER (start_ns >= api_end_ns) AS queue_med_ns
    FROM ops
    GROUP BY report_id, device
)
SELECT
    k.report_id,
    k.device,
    k.kernels,
    a.calls,
    a.calls / nullif(o.window_ns / 1e6, 0) AS launches_per_ms,
    a.api_med_ns,
    k.queue_med_ns,
    k.short_kernels,
    100.0 * k.short_kernels / nullif(k.kernels, 0) AS short_kernels_pct,
    100.0 * coalesce(k.short_ns, 0) / nullif(k.kernel_ns, 0) AS short_time_pct,
    k.graph_launches,
    k.graph_kernels,
    o.ns AS launch_overhead_ns,
    CASE WHEN k.kernels > 0 THEN o.pct * (1 - k.graph_kernels / k.kernels) END AS graphs_save_pct
FROM kernels AS k
JOIN overhead AS o USING (report_id, device)
LEFT JOIN api AS a USING (report_id, device)
ORDER BY k.report_id, k.device;
