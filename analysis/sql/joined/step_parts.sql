-- Duration of a step on each timeline: the median step, and the mean time per step in each category of
-- gpu_time_budget, over all GPUs of the report. Without steps, or if --window selects more than the steps,
-- the values refer to the whole window.
--
-- report_id VARCHAR: report
-- profiler VARCHAR: nsys or torch
-- part VARCHAR: step (or capture for the whole window), or a category of gpu_time_budget
-- gpus BIGINT: number of GPUs
-- steps BIGINT: number of steps, summed over all GPUs; NULL for a whole window
-- time_ns DOUBLE: median duration of a step, or mean time of a category, ns; the categories add up to the
--   mean step duration
-- sm_clock_hz DOUBLE: median SM clock, Hz; NULL if GPU metrics were not sampled
CREATE VIEW step_parts AS
WITH whole AS (
    SELECT * REPLACE (CASE WHEN kind IN ('steady', 'step') THEN steps END AS steps)
    FROM analysis_windows
),
chosen AS (
    -- The GPUs with steps, if there are any.
    SELECT *
    FROM whole
    QUALIFY steps IS NOT NULL OR NOT bool_or(steps IS NOT NULL) OVER (PARTITION BY report_id)
),
windows AS (
    SELECT
        report_id,
        count(*) AS gpus,
        sum(steps)::BIGINT AS steps,
        median(CASE WHEN steps IS NULL THEN time_ns ELSE step_ns END) AS step_ns
    FROM chosen
    GROUP BY report_id
),
parts AS (
    SELECT report_id, if(steps IS NULL, 'capture', 'step') AS part, step_ns AS time_ns, 0 AS place
    FROM windows
    UNION ALL
    SELECT b.report_id, b.category, sum(b.time_ns)::DOUBLE / any_value(coalesce(w.steps, w.gpus)), 1
    FROM gpu_time_budget AS b
    JOIN chosen AS c ON c.report_id = b.report_id AND c.device IS NOT DISTINCT FROM b.device
    JOIN windows AS w ON w.report_id = b.report_id
    GROUP BY b.report_id, b.category
)
SELECT
    p.report_id,
    r.kind AS profiler,
    p.part,
    w.gpus,
    w.steps,
    p.time_ns,
    c.sm_clock_hz
FROM parts AS p
JOIN windows AS w USING (report_id)
JOIN reports AS r USING (report_id)
LEFT JOIN _sampled_clocks AS c USING (report_id)
ORDER BY p.report_id, p.place, p.time_ns DESC, p.part;
