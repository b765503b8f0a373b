-- Time in CUDA API calls by function, matching `nsys stats --report cuda_api_sum`. Runtime and driver API
-- calls are both included, and nested calls are counted.
--
-- report_id VARCHAR: report
-- time_pct DOUBLE: percentage of the report's total time in this view, rounded to 0.1 as in nsys
-- total_time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- num_calls BIGINT: number of calls
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the two middle values if the count is even), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (divisor n - 1; 0 if there is only one value), ns, rounded
--   to 0.1
-- name VARCHAR: function name; as in nsys, four-digit version suffixes are removed and longer suffixes are
--   kept
CREATE VIEW cuda_api_sum AS
SELECT
    report_id,
    time_pct,
    total_time_ns,
    instances AS num_calls,
    avg_ns,
    med_ns,
    min_ns,
    max_ns,
    stddev_ns,
    name
FROM _duration_stats
WHERE kind = 'api'
ORDER BY report_id, total_time_ns DESC, name;
