-- Time budget of each GPU: an exact partition of the analyzed window into categories, in integer nanoseconds.
-- The window consists of the steady steps (see analysis_windows). Without steps, the window extends from the
-- start of the first operation to the end of the last. Overlapping work counts once: communication is the
-- time in communication kernels without concurrent compute, and transfer is the time in copies and memsets
-- without concurrent kernels. The time in which pages of unified memory migrate is not part of them. Idle
-- time is classified by what the host was doing before the next operation. Profiler overhead is a separate
-- category. If more than half of the GPU work was recorded incorrectly or not at all, the shares are unknown,
-- and the report has no rows.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- window_start_ns BIGINT: start of the first step, or of the first operation if there are no steps, ns
-- window_end_ns BIGINT: end of the last step, or of the last operation if there are no steps, ns
-- window_ns BIGINT: total duration of the steps, ns; less than window_end_ns - window_start_ns if steps in
--   between are excluded
-- category VARCHAR: compute (kernels other than communication), communication (exposed), migration (pages
--   of unified memory migrate on demand, or the driver handles page faults of the GPU, while a kernel runs;
--   or pages migrate for any reason while no kernel runs), transfer (copies and memsets, exposed), sync (the
--   host waited for the GPU, so the GPU ran out of work), launch_gap (the host was between two launches),
--   host (the host launched nothing for longer than the usual interval between launches, or until pages of
--   unified memory migrated), launch_api (idle during the launching call), queued (idle after the launching
--   call, before the operation started), kernel_gap (idle although the next operation had already been
--   launched: between graph nodes, streams or dependent kernels), device_wait (idle for more than 500 us
--   although the next operation had been issued: it waits for its dependencies), building (the host builds a
--   kernel anew in the steps, compiles with XLA, or captures CUDA graphs), no_work (the program waits for
--   requests), loading (first use of a kernel, module loading), profiler_overhead, edge (before the first or
--   after the last operation in a selected window) or unattributed (no launching call was recorded)
-- time_ns BIGINT: time, ns; 0 for categories with no time
-- share_pct DOUBLE: percentage of the window
-- note VARCHAR: caveat; NULL if there is none
CREATE VIEW gpu_time_budget AS
WITH hidden AS (
    SELECT t.report_id, t.device, count(*) AS n
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    WHERE l.kind = 'graph'
    GROUP BY t.report_id, t.device
),
summed AS (
    SELECT report_id, device, category, sum(time_ns)::BIGINT AS time_ns
    FROM _budgets
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY ALL
)
SELECT
    b.report_id,
    b.device,
    w.start_ns AS window_start_ns,
    w.end_ns AS window_end_ns,
    w.time_ns AS window_ns,
    b.category,
    b.time_ns,
    100.0 * b.time_ns / nullif(w.time_ns, 0) AS share_pct,
    CASE
        WHEN b.category = 'compute' AND h.n > 0
            THEN printf(
                'includes %d CUDA graph launches with hidden kernels (trace with --cuda-graph-trace=node)',
                h.n
            )
    END AS note
FROM summed AS b
JOIN analysis_windows AS w ON w.report_id = b.report_id AND w.device IS NOT DISTINCT FROM b.device
LEFT JOIN hidden AS h ON h.report_id = b.report_id AND h.device = b.device
ORDER BY b.report_id, b.device, b.time_ns DESC, b.category;
