-- NVTX ranges by style and name, equal to `nsys stats --report nvtx_sum`. The total includes nested ranges.
--
-- report_id VARCHAR: report
-- time_pct DOUBLE: share of the report's total time in this view, %, rounded to 0.1 as nsys does
-- total_time_ns BIGINT: total duration, ns; overlaps count twice
-- instances BIGINT: number of ranges
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the middle two), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (n - 1; 0 if there is only one value), ns, rounded to 0.1
-- style VARCHAR: range style: PushPop or StartEnd
-- range VARCHAR: name as domain:text; the default domain is empty
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
