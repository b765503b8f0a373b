-- Whether requests arrive faster than they are answered, by two signs. Latency grows during the load, if the
-- server answers requests in their order; if it grows by g seconds per second, arrivals at a rate r are
-- answered at r / (1 + g). The number of requests in progress grows in the second half of the arrivals,
-- whatever the order. Either must be larger than its own noise: three standard errors of the regression; two
-- standard deviations of a Poisson number.
CREATE VIEW _saturation AS
WITH spans AS (
    SELECT
        report_id,
        load_id,
        begin_ns,
        end_ns,
        succeeded OR coalesce(timed_out, false) AS waited,
        min(begin_ns) OVER load AS first_ns,
        max(begin_ns) OVER load AS last_ns,
        (min(begin_ns) OVER load + max(begin_ns) OVER load) // 2 AS half_ns
    FROM _request_times
    WHERE begin_ns IS NOT NULL AND end_ns IS NOT NULL
    WINDOW load AS (PARTITION BY report_id, load_id)
),
counted AS (
    SELECT
        report_id,
        load_id,
        count(*) FILTER (begin_ns > half_ns) AS arrived,
        count(*) FILTER (begin_ns <= half_ns) - count(*) FILTER (end_ns <= half_ns) AS before,
        count(*) - count(*) FILTER (end_ns <= last_ns) AS after,
        any_value(last_ns - first_ns) / 1e9 AS arrival_s,
        median((end_ns - begin_ns) / 1e9) FILTER (waited) AS median_s
    FROM spans
    GROUP BY report_id, load_id
),
-- Seconds since the first request, and latencies, less their means, so that sums of squares lose no digits.
-- Sums of integers do not depend on the order of rows.
centered AS (
    SELECT
        report_id,
        load_id,
        (begin_ns - first_ns - sum(begin_ns - first_ns) OVER load / count(*) OVER load) / 1e9 AS x,
        (end_ns - begin_ns - sum(end_ns - begin_ns) OVER load / count(*) OVER load) / 1e9 AS y
    FROM spans
    WHERE waited
    WINDOW load AS (PARTITION BY report_id, load_id)
),
sums AS (
    SELECT
        report_id, load_id, count(*) AS points,
        ordered_sum(x * x) AS xx, ordered_sum(x * y) AS xy, ordered_sum(y * y) AS yy
    FROM centered
    GROUP BY report_id, load_id
)
SELECT
    c.report_id,
    c.load_id,
    coalesce(s.points, 0) AS points,
    s.xy / nullif(s.xx, 0) AS latency_growth,
    greatest(s.yy - s.xy * s.xy / nullif(s.xx, 0), 0) / nullif(s.points - 2, 0) AS variance,
    sqrt(variance / nullif(s.xx, 0)) AS error,
    100.0 * (c.after - c.before) / nullif(c.arrived, 0) AS backlog_pct,
    latency_growth > threshold('serving.growth') AND latency_growth > 3 * error AS slower,
    backlog_pct > 100 * threshold('serving.growth')
        AND c.after - c.before > 2 * sqrt(c.after + c.before) AS fuller,
    c.median_s > c.arrival_s / 2 AS brief
FROM counted AS c
LEFT JOIN sums AS s ON s.report_id = c.report_id AND s.load_id = c.load_id;
