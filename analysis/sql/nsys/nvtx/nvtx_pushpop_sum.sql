-- NVTX push/pop ranges by name, matching `nsys stats --report nvtx_pushpop_sum`. The total includes nested
-- ranges.
--
-- report_id VARCHAR: report
-- time_pct DOUBLE: percentage of the report's total time in this view, rounded to 0.1 as in nsys
-- total_time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- instances BIGINT: number of ranges
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the two middle values if the count is even), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (divisor n - 1; 0 if there is only one value), ns, rounded
--   to 0.1
-- range VARCHAR: name as domain:text; the domain is empty for the default domain
CREATE VIEW nvtx_pushpop_sum AS
SELECT
    report_id,
    time_pct,
    total_time_ns,
    instances,
    avg_ns,
    med_ns,
    min_ns,
    max_ns,
    stddev_ns,
    name AS range
FROM _duration_stats
WHERE kind = 'PushPop'
ORDER BY report_id, total_time_ns DESC, name;
