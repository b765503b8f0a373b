-- Summary of each process's steps on each GPU: duration, spread, outliers, and the extra time of the first
-- step (module loading, compilation, caches).
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- steps BIGINT: number of steps
-- mean_ns DOUBLE: mean step duration, ns
-- p50_ns DOUBLE: median step duration, ns
-- p95_ns DOUBLE: 95th percentile (p95) of the step duration, ns
-- cv_pct DOUBLE: coefficient of variation of the step duration (sample standard deviation / mean), %; NULL
--   if there is only one step
-- first_ns BIGINT: duration of the first step, ns
-- first_excess_ns DOUBLE: duration of the first step minus the median, ns
-- first_loading_ns BIGINT: total duration of the host calls that loaded modules or libraries during the
--   first step, ns
-- outliers VARCHAR[]: steps whose duration differs from the median by more than five median absolute
--   deviations and by more than 5 % of the median
CREATE VIEW step_summary AS
WITH own AS (
    SELECT
        g.report_id, g.device, w.pid AS process_id, w.window_id, w.name AS step, w.step AS step_index,
        w.end_ns - w.start_ns AS step_ns, w.host_start_ns, w.host_end_ns
    FROM _lane_windows AS w
    JOIN _gpus AS g USING (track)
    WHERE w.main
),
spread AS (
    SELECT report_id, device, process_id, median(step_ns) AS p50, mad(step_ns) AS deviation
    FROM own
    GROUP BY report_id, device, process_id
),
first_ranges AS (
    FROM own
    QUALIFY row_number() OVER (PARTITION BY report_id, device, process_id ORDER BY window_id) = 1
),
loading AS (
    SELECT f.report_id, f.device, f.process_id, sum(c.dur_ns)::BIGINT AS ns
    FROM first_ranges AS f
    JOIN nsys_api_calls AS c
        ON c.report_id = f.report_id
            AND c.pid = f.process_id
            AND c.start_ns BETWEEN f.host_start_ns AND f.host_end_ns
    WHERE c.name IN (SELECT name FROM _names WHERE kind = 'api' AND is_loading(name))
    GROUP BY f.report_id, f.device, f.process_id
)
SELECT
    s.report_id,
    s.device,
    s.process_id,
    count(*) AS steps,
    avg(s.step_ns) AS mean_ns,
    d.p50 AS p50_ns,
    quantile_cont(s.step_ns, 0.95) AS p95_ns,
    100 * exact_stddev(s.step_ns) / nullif(avg(s.step_ns), 0) AS cv_pct,
    arg_min(s.step_ns, s.step_index) AS first_ns,
    arg_min(s.step_ns, s.step_index) - d.p50 AS first_excess_ns,
    any_value(l.ns) AS first_loading_ns,
    coalesce(list(s.step ORDER BY s.step_index) FILTER (
        WHERE abs(s.step_ns - d.p50) > greatest(
            threshold('timeline.outlier_deviations') * d.deviation,
            threshold('timeline.outlier_share') * d.p50
        )
    ), []) AS outliers
FROM own AS s
JOIN spread AS d USING (report_id, device, process_id)
LEFT JOIN loading AS l USING (report_id, device, process_id)
GROUP BY s.report_id, s.device, s.process_id, d.p50
ORDER BY s.report_id, s.device, s.process_id;
