-- Time of a steady step without and with the profiler, and how busy the GPU is in each: the share of the time
-- in which at least one kernel runs. The time in which the GPU only copies is separate. The profiler
-- lengthens steps mainly by slowing down the host, so the GPU's work per step stays the same: its share is
-- larger in a step without the profiler, and the share of idle time is smaller. Only timelines with steady
-- steps have rows.
--
-- report_id VARCHAR: report of the timeline
-- device BIGINT: physical GPU number
-- traced_ns DOUBLE: median duration of a steady step under the profiler, ns
-- plain_ns DOUBLE: median time of a step without the profiler, ns: as the program prints it, or as perfpipe
--   observed it; NULL if unknown
-- growth_pct DOUBLE: how much longer a step takes under the profiler, % of plain_ns; NULL if unknown
-- traced_busy_pct DOUBLE: share of a traced step in which the GPU is busy, %
-- busy_pct DOUBLE: share of a step without the profiler in which the GPU is busy, %; traced_busy_pct if
--   plain_ns is NULL
-- copying_pct DOUBLE: share of a step without the profiler in which the GPU only copies or sets memory, %;
--   share of a traced step if plain_ns is NULL
-- work_scale DOUBLE: factor that converts a share of compute and transfers in a traced step to their share in
--   a step without the profiler; 1 if plain_ns is NULL
-- communication_scale DOUBLE: the same factor for exposed communication: 1, because it is mostly waiting for
--   other ranks, unless the other work leaves less time
-- idle_scale DOUBLE: the same factor for a share of idle time
CREATE VIEW step_times AS
WITH plain AS (
    SELECT report_id, device, 1e6 * plain_step_ms AS plain_ns
    FROM run_tracing
    WHERE step_pct IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY report_id, device ORDER BY run_id DESC) = 1
),
traced AS (
    SELECT
        report_id,
        device,
        100.0 * sum(if(is_work(category) AND category != 'communication', time_ns, 0))
            / any_value(window_ns) AS work_pct,
        100.0 * sum(if(is_busy(category), time_ns, 0)) / any_value(window_ns) AS traced_busy_pct,
        100.0 * sum(if(category = 'communication', time_ns, 0)) / any_value(window_ns) AS waiting_pct,
        100.0 * sum(if(category = 'profiler_overhead', time_ns, 0)) / any_value(window_ns) AS overhead_pct
    FROM gpu_time_budget
    GROUP BY report_id, device
),
scaled AS (
    SELECT
        w.report_id,
        w.device,
        w.step_ns AS traced_ns,
        p.plain_ns,
        t.* EXCLUDE (report_id, device),
        least(100.0, t.work_pct * w.step_ns / p.plain_ns) AS plain_work_pct,
        least(t.waiting_pct, 100 - plain_work_pct) AS plain_waiting_pct
    FROM analysis_windows AS w
    JOIN traced AS t ON t.report_id = w.report_id AND t.device IS NOT DISTINCT FROM w.device
    LEFT JOIN plain AS p ON p.report_id = w.report_id AND p.device IS NOT DISTINCT FROM w.device
    WHERE w.kind = 'steady' AND w.step_ns > 0
)
SELECT
    report_id,
    device,
    traced_ns,
    plain_ns,
    100 * (traced_ns / plain_ns - 1) AS growth_pct,
    traced_busy_pct,
    (traced_busy_pct - waiting_pct) * work_scale + waiting_pct * communication_scale AS busy_pct,
    (work_pct + waiting_pct - traced_busy_pct) * work_scale AS copying_pct,
    work_scale,
    communication_scale,
    CASE
        WHEN plain_ns IS NULL THEN 1.0
        ELSE coalesce(
            (100 - plain_work_pct - plain_waiting_pct)
            / nullif(100 - work_pct - waiting_pct - overhead_pct, 0),
            1
        )
    END AS idle_scale
FROM (
    SELECT
        *,
        if(plain_ns IS NULL, 1.0, coalesce(plain_work_pct / nullif(work_pct, 0), 1)) AS work_scale,
        if(plain_ns IS NULL, 1.0, coalesce(plain_waiting_pct / nullif(waiting_pct, 0), 1))
            AS communication_scale
    FROM scaled
)
ORDER BY report_id, device;
