-- Steps of each GPU together: length, spread, outliers, and what the first one costs (lazy loading
-- of modules, compilation, caches).
--
-- report_id: report
-- device: GPU number of the machine
-- steps: steps
-- mean_ns: mean length, ns
-- p50_ns: median length, ns
-- p95_ns: 95th percentile, ns
-- cv_pct: sample standard deviation of the mean, %; NULL for one step
-- first_ns: length of the first step, ns
-- first_excess_ns: first step beyond the median, ns
-- first_loading_ns: sum of the calls that loaded modules or libraries during the range of the first step, ns
-- outliers: steps farther from the median than five median absolute deviations (and 5 % of it)
CREATE VIEW step_summary AS
WITH steps AS (
    SELECT DISTINCT report_id, device, step, step_index, step_ns
    FROM step_budget
),
spread AS (
    SELECT report_id, device, median(step_ns) AS p50, mad(step_ns) AS deviation
    FROM steps
    GROUP BY report_id, device
),
first_ranges AS (
    SELECT report_id, pid, start_ns, end_ns
    FROM _steps
    WHERE calls > 0
    QUALIFY row_number() OVER (PARTITION BY report_id, pid ORDER BY start_ns, range_id) = 1
),
loading AS (
    SELECT t.report_id, t.device, sum(c.dur_ns)::BIGINT AS ns
    FROM first_ranges AS f
    JOIN nsys_api_calls AS c
        ON c.report_id = f.report_id AND c.pid = f.pid AND c.start_ns BETWEEN f.start_ns AND f.end_ns
    JOIN _tracks AS t ON t.report_id = f.report_id AND t.pid = f.pid
    WHERE is_loading(c.name)
    GROUP BY t.report_id, t.device
)
SELECT
    s.report_id,
    s.device,
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
FROM steps AS s
JOIN spread AS d USING (report_id, device)
LEFT JOIN loading AS l USING (report_id, device)
GROUP BY s.report_id, s.device, d.p50
ORDER BY s.report_id, s.device;
