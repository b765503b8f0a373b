-- Share of the time that each profiled launch represents. If all profiled reports have a timeline, the share
-- refers to the step (the analyzed window; the steps of all timelines if there are several; the timed kernels
-- of a benchmark), else to the profiled time. A step lasts as long as without the profiler, if that is known.
-- The timeline's time of a kernel is distributed over the launches of the same configuration by their
-- duration. `most` is the share that faster kernels can save;
-- NULL if nothing is known about the host, or if it does not matter.
-- @materialize
CREATE VIEW _launch_shares AS
WITH launches AS (
    SELECT report_id, launch_id, kernel_key(kernel_demangled) AS key, grid, block, duration_ns
    FROM kernel_sol
    WHERE duration_ns IS NOT NULL
),
kernels AS (
    SELECT report_id, device, sum(time_ns) AS time_ns
    FROM _step_kernels
    GROUP BY report_id, device
),
windows AS (
    SELECT
        bool_and(b.repetitions IS NOT NULL) AS timed,
        CASE
            WHEN timed THEN sum(k.time_ns)
            ELSE ordered_sum((w.end_ns - w.start_ns) / coalesce(t.work_scale, 1))
        END AS time_ns,
        bool_and(w.kind = 'steady') AS steady,
        count(*) > 1 AS several,
        CASE
            WHEN NOT timed AND count(*) = count(l.most_pct)
                THEN 1 - sum(l.host_ns ORDER BY report_id, device) / sum(l.step_ns ORDER BY report_id, device)
        END AS most
    FROM analysis_windows AS w
    JOIN kernels AS k USING (report_id, device)
    LEFT JOIN benchmark_loops AS b USING (report_id, device)
    LEFT JOIN _kernel_limits AS l USING (report_id, device)
    LEFT JOIN step_times AS t USING (report_id, device)
),
paired AS (
    SELECT ncu_report_id AS report_id, bool_or(report_id IN (SELECT report_id FROM _step_kernels)) AS timed
    FROM _report_pairs
    GROUP BY ncu_report_id
),
basis AS (
    SELECT
        coalesce(bool_and(p.timed IS NOT NULL AND p.timed), false) AS on_timeline,
        nullif(sum(l.duration_ns ORDER BY report_id, launch_id), 0) AS profiled_ns
    FROM launches AS l
    LEFT JOIN paired AS p USING (report_id)
),
stood_for AS (
    SELECT
        l.report_id,
        l.launch_id,
        k.time_ns * l.duration_ns / nullif(
            sum(l.duration_ns) OVER (
                PARTITION BY k.report_id, k.device, l.key, l.grid, l.block
                ORDER BY l.report_id, l.launch_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            ),
            0
        ) AS time_ns
    FROM launches AS l
    JOIN _report_pairs AS p ON p.ncu_report_id = l.report_id
    JOIN _step_kernels AS k
        ON k.report_id = p.report_id
        AND k.key = l.key
        AND k.grid = l.grid
        AND k.block = l.block
),
on_timelines AS (
    SELECT report_id, launch_id, ordered_sum(time_ns) AS time_ns
    FROM stood_for
    GROUP BY report_id, launch_id
)
SELECT
    l.report_id,
    l.launch_id,
    CASE
        WHEN NOT b.on_timeline THEN 'profile'
        WHEN w.timed THEN 'timed'
        WHEN w.steady THEN if(w.several, 'steps', 'step')
        ELSE 'timeline'
    END AS share_of,
    CASE
        WHEN b.on_timeline THEN coalesce(t.time_ns, 0) / nullif(w.time_ns, 0)
        ELSE l.duration_ns / b.profiled_ns
    END AS share,
    CASE WHEN b.on_timeline THEN w.most END AS most
FROM launches AS l
LEFT JOIN on_timelines AS t USING (report_id, launch_id)
CROSS JOIN basis AS b
CROSS JOIN windows AS w;
