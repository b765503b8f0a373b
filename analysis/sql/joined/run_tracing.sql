-- Profiler overhead in a run's timelines: a traced steady step compared with the iteration time that the
-- program measures without a profiler. If the program does not report a time, the wall times of the whole
-- program are compared.
--
-- run_id VARCHAR: run
-- task_index BIGINT: configuration, counted from 0
-- label VARCHAR: parameters of the configuration as text
-- report_id VARCHAR: report of the timeline
-- device BIGINT: physical GPU number
-- profiler VARCHAR: nsys or torch
-- timing_method VARCHAR: how the program measured its own iteration time, or observed if perfpipe timed the
--   steps; NULL without such a measurement
-- plain_step_ms DOUBLE: median iteration time without a profiler, ms; NULL if the program does not report a
--   time and perfpipe did not time its steps
-- traced_step_ms DOUBLE: median duration of a steady step under the profiler, ms; for queued iterations, idle
--   time caused by the host is excluded, because a full launch queue hides host delays; NULL without steady
--   steps
-- step_pct DOUBLE: difference between traced_step_ms and plain_step_ms, % of plain_step_ms; NULL if a time is
--   missing, or if the two times do not measure the same work
-- plain_wall_s DOUBLE: median wall time of the program without a profiler, s; NULL if the recording does not
--   contain it
-- traced_wall_s DOUBLE: wall time of the program under nsys, excluding the time that nsys spends writing its
--   report, s; NULL if this time is shorter than plain_wall_s, because only part of the program was captured
-- launch_wall_s DOUBLE: wall time of one execution of the program under the profiler, including the time to
--   write the report, s; NULL in records written by older versions
-- wall_pct DOUBLE: difference between traced_wall_s (or launch_wall_s if it is NULL) and plain_wall_s, % of
--   plain_wall_s; both times include start-up
-- lengthened_pct DOUBLE: slowdown caused by the profiler: step_pct, or wall_pct if step_pct is NULL, %
-- notable BOOLEAN: whether lengthened_pct is above the threshold agreement.traced_pct; NULL if no comparison
--   is possible
-- basis VARCHAR: quantity that is compared: step, GPU time of a step or wall time; NULL if no comparison is
--   possible
-- why VARCHAR: description of what the comparison excludes or includes; NULL if steps are compared
CREATE VIEW run_tracing AS
WITH sources AS (
    SELECT run_id, task_index, label, timing_method, median_ms, wall_s, profiler_s,
        unnest(reports) AS report_id
    FROM run_tasks
),
captured AS (
    SELECT report_id, max(TRY_CAST(value AS DOUBLE)) / 1e3 AS program_s
    FROM nsys_environment
    WHERE source = 'capture' AND name = 'RUN_DURATION_MS'
    GROUP BY report_id
),
steady AS (
    SELECT w.track, w.window_id, w.repeats, (w.end_ns - w.start_ns) / w.repeats AS mean_ns
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
    WHERE p.phase = 'steady'
),
issued AS (
    SELECT track, sum(time_ns) AS time_ns
    FROM _budgets
    SEMI JOIN steady USING (track, window_id)
    WHERE is_work(category) OR category IN ('kernel_gap', 'device_wait')
    GROUP BY track
),
-- Steady steps of each GPU, whatever window is chosen: the median, and the mean part of it that the host does
-- not cause: work, and gaps between operations that were launched in time.
steady_steps AS (
    SELECT
        g.report_id,
        g.device,
        median(s.mean_ns) AS step_ns,
        any_value(i.time_ns) / sum(s.repeats) AS gpu_ns
    FROM steady AS s
    JOIN issued AS i USING (track)
    JOIN _gpus AS g USING (track)
    GROUP BY g.report_id, g.device
),
measured AS (
    SELECT
        s.* EXCLUDE (profiler_s),
        r.kind AS profiler,
        w.device,
        CASE WHEN s.timing_method = 'queued' THEN t.gpu_ns ELSE t.step_ns END / 1e6 AS traced_step_ms,
        -- No step is shorter than its work: the host issued steps without waiting for the GPU.
        s.timing_method = 'observed'
            AND s.median_ms < t.gpu_ns / 1e6 * (1 - threshold('agreement.differ_pct') / 100) AS ran_ahead,
        CASE WHEN c.program_s >= s.wall_s THEN c.program_s END AS traced_wall_s,
        TRY_CAST(s.profiler_s->>r.kind AS DOUBLE) AS launch_wall_s
    FROM sources AS s
    JOIN reports AS r USING (report_id)
    JOIN analysis_windows AS w USING (report_id)
    LEFT JOIN steady_steps AS t ON t.report_id = w.report_id AND t.device IS NOT DISTINCT FROM w.device
    LEFT JOIN captured AS c ON c.report_id = s.report_id
),
compared AS (
    SELECT
        *,
        traced_step_ms BETWEEN median_ms / threshold('agreement.traced_times')
            AND median_ms * threshold('agreement.traced_times')
            AND ran_ahead IS NOT TRUE AS alike,
        CASE WHEN alike THEN 100 * (traced_step_ms / nullif(median_ms, 0) - 1) END AS step_pct,
        100 * (coalesce(traced_wall_s, launch_wall_s) / nullif(wall_s, 0) - 1) AS wall_pct
    FROM measured
)
SELECT
    run_id,
    task_index,
    label,
    report_id,
    device,
    profiler,
    timing_method,
    median_ms AS plain_step_ms,
    traced_step_ms,
    step_pct,
    wall_s AS plain_wall_s,
    traced_wall_s,
    launch_wall_s,
    wall_pct,
    coalesce(step_pct, wall_pct) AS lengthened_pct,
    coalesce(step_pct, wall_pct) > threshold('agreement.traced_pct') AS notable,
    CASE
        WHEN step_pct IS NOT NULL AND timing_method = 'queued' THEN 'GPU time of a step'
        WHEN step_pct IS NOT NULL THEN 'step'
        WHEN wall_pct IS NOT NULL THEN 'wall time'
    END AS basis,
    concat_ws(
        '; ',
        CASE
            WHEN step_pct IS NOT NULL AND timing_method = 'queued'
                THEN 'iterations were timed with a full queue, which hides host time'
            WHEN step_pct IS NOT NULL THEN NULL
            WHEN median_ms IS NULL THEN 'the program reports no iteration time'
            WHEN traced_step_ms IS NULL THEN 'the timeline has no steady steps'
            WHEN ran_ahead THEN 'the host ran ahead of the GPU when perfpipe timed the steps'
            ELSE 'the time that the program reports is not a step time'
        END,
        CASE
            WHEN step_pct IS NOT NULL OR wall_pct IS NULL THEN NULL
            WHEN traced_wall_s IS NULL
                THEN 'wall time includes start-up and writing the profiler report'
            ELSE 'wall time includes start-up'
        END
    ) AS why
FROM compared
ORDER BY run_id, task_index, report_id, device;
