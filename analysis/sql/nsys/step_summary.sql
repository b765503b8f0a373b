-- Steps of each GPU together: length, spread, outliers, and what the first one costs (lazy loading of modules,
-- compilation, caches).
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
-- outliers: steps farther from the median than five median absolute deviations (and 5 % of it)
CREATE VIEW step_summary AS
WITH steps AS (
    SELECT DISTINCT report_id, device, step, step_index, step_ns
    FROM step_budget
),
middle AS (
    SELECT report_id, device, median(step_ns) AS p50
    FROM steps
    GROUP BY report_id, device
),
spread AS (
    SELECT s.report_id, s.device, m.p50, mad(s.step_ns) AS deviation
    FROM steps AS s
    JOIN middle AS m USING (report_id, device)
    GROUP BY s.report_id, s.device, m.p50
)
SELECT
    s.report_id,
    s.device,
    count(*) AS steps,
    avg(s.step_ns) AS mean_ns,
    d.p50 AS p50_ns,
    quantile_cont(s.step_ns, 0.95) AS p95_ns,
    100 * stddev_samp(s.step_ns) / nullif(avg(s.step_ns), 0) AS cv_pct,
    arg_min(s.step_ns, s.step_index) AS first_ns,
    arg_min(s.step_ns, s.step_index) - d.p50 AS first_excess_ns,
    coalesce(list(s.step ORDER BY s.step_index) FILTER (
        WHERE abs(s.step_ns - d.p50) > greatest(threshold('timeline.outlier_deviations') * d.deviation, 0.05 * d.p50)
    ), []) AS outliers
FROM steps AS s
JOIN spread AS d USING (report_id, device)
GROUP BY s.report_id, s.device, d.p50
ORDER BY s.report_id, s.device;
