-- NVTX ranges projected onto the GPU, matching `nsys stats --report nvtx_gpu_proj_sum`. A range's projection
-- extends from the start of the first to the end of the last operation launched within the range on its
-- thread. The projection is a time span, not busy time, so it includes idle time and the work of other
-- ranges. All work from one launching call (a CUDA graph) counts as one operation.
--
-- report_id VARCHAR: report
-- range VARCHAR: name of the range, as domain:text
-- style VARCHAR: range style: PushPop or StartEnd
-- total_proj_time_ns BIGINT: sum of the projected durations, ns
-- total_range_time_ns BIGINT: sum of the ranges' durations on the host, ns
-- range_instances BIGINT: number of ranges that launched work
-- proj_avg_ns DOUBLE: mean projected duration, ns, rounded to 0.1
-- proj_med_ns DOUBLE: median projected duration, ns
-- proj_min_ns BIGINT: shortest projected duration, ns
-- proj_max_ns BIGINT: longest projected duration, ns
-- proj_stddev_ns DOUBLE: sample standard deviation of the projected duration (divisor n - 1; 0 if there is
--   only one range), ns
-- total_gpu_ops BIGINT: number of launching calls
-- avg_gpu_ops DOUBLE: mean number of launching calls per range, rounded to 0.1
-- avg_range_lvl DOUBLE: mean nesting depth of the ranges across all domains, rounded to 0.1
-- avg_num_child DOUBLE: mean number of direct child ranges, rounded to 0.1
CREATE VIEW nvtx_gpu_proj_sum AS
WITH ranges AS (
    SELECT *, gpu_end_ns - gpu_start_ns AS proj_ns
    FROM nsys_nvtx_ranges
    WHERE gpu_calls > 0
)
SELECT
    report_id,
    nsys_range_name(domain, name) AS range,
    style,
    sum(proj_ns)::BIGINT AS total_proj_time_ns,
    sum(dur_ns)::BIGINT AS total_range_time_ns,
    count(*) AS range_instances,
    round_tenth(avg(proj_ns)) AS proj_avg_ns,
    round_tenth(median(proj_ns)) AS proj_med_ns,
    min(proj_ns) AS proj_min_ns,
    max(proj_ns) AS proj_max_ns,
    nsys_stddev(proj_ns) AS proj_stddev_ns,
    sum(gpu_calls)::BIGINT AS total_gpu_ops,
    round_tenth(avg(gpu_calls)) AS avg_gpu_ops,
    round_tenth(avg(level)) AS avg_range_lvl,
    round_tenth(avg(children)) AS avg_num_child
FROM ranges
GROUP BY report_id, domain, name, style
ORDER BY report_id, total_proj_time_ns DESC, range;
