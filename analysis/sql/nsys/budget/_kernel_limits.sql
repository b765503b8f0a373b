-- Time that faster kernels can save in the analyzed windows: the windows minus the time that the host needs
-- to issue the work. Tracing lengthens the host's time by a multiple of the time in launching calls; without
-- tracing, the step may wait for the GPU instead.
-- @materialize
CREATE VIEW _kernel_limits AS
WITH work AS (
    SELECT report_id, device, sum(time_ns) FILTER (is_work(category))::BIGINT AS work_ns
    FROM gpu_time_budget
    GROUP BY report_id, device
),
hosts AS (
    SELECT
        g.report_id,
        g.device,
        v.time_ns,
        coalesce(b.work_ns, 0) AS work_ns,
        greatest(v.time_ns - max(h.least_ns), 0) AS waiting_ns,
        greatest(max(h.least_ns) - threshold('timeline.traced_calls') * coalesce(c.api_ns, 0), 0) AS host_ns
    FROM _host_work AS h
    JOIN _gpus AS g USING (track)
    JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
    LEFT JOIN work AS b ON b.report_id = g.report_id AND b.device = g.device
    LEFT JOIN launch_summary AS c ON c.report_id = g.report_id AND c.device = g.device
    GROUP BY g.report_id, g.device, v.time_ns, b.work_ns, c.api_ns
)
SELECT
    *,
    waiting_ns + greatest(host_ns, work_ns) AS step_ns,
    100 * (1 - host_ns / nullif(step_ns, 0)) AS most_pct
FROM hosts;
