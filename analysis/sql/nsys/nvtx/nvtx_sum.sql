-- NVTX ranges by style and name, matching `nsys stats --report nvtx_sum`. The total includes nested ranges.
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
-- style VARCHAR: range style: PushPop or StartEnd
-- range VARCHAR: name as domain:text; the domain is empty for the default domain
CREATE VIEW nvtx_sum AS
SELECT
    report_id,
    round_tenth(
        100.0 * total_time_ns / nullif(sum(total_time_ns) OVER (PARTITION BY report_id), 0)
    ) AS time_pct,
    total_time_ns,
    instances,
    avg_ns,
    med_ns,
    min_ns,
    max_ns,
    stddev_ns,
    kind AS style,
    name AS range
FROM _duration_stats
WHERE kind IN ('PushPop', 'StartEnd')
ORDER BY report_id, total_time_ns DESC, style, name;
