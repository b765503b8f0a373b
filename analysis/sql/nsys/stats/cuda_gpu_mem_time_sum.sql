-- GPU time of memory operations, by operation, matching `nsys stats --report cuda_gpu_mem_time_sum`.
--
-- report_id VARCHAR: report
-- time_pct DOUBLE: percentage of the report's total time in this view, rounded to 0.1 as in nsys
-- total_time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- count BIGINT: number of operations
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the two middle values if the count is even), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (divisor n - 1; 0 if there is only one value), ns, rounded
--   to 0.1
-- operation VARCHAR: copy direction or memset
CREATE VIEW cuda_gpu_mem_time_sum AS
SELECT
    report_id,
    time_pct,
    total_time_ns,
    instances AS count,
    avg_ns,
    med_ns,
    min_ns,
    max_ns,
    stddev_ns,
    name AS operation
FROM _duration_stats
WHERE kind = 'memory'
ORDER BY report_id, total_time_ns DESC, operation;
