-- Kernel time by name, grid and block, matching `nsys stats --report cuda_gpu_kern_gb_sum`.
--
-- report_id VARCHAR: report
-- time_pct DOUBLE: percentage of the report's total time in this view, rounded to 0.1 as in nsys
-- total_time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- instances BIGINT: number of executions
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the two middle values if the count is even), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (divisor n - 1; 0 if there is only one value), ns, rounded
--   to 0.1
-- gridxyz VARCHAR: grid size in blocks (x, y and z), as nsys prints it
-- blockxyz VARCHAR: block size in threads (x, y and z)
-- name VARCHAR: kernel name with template arguments
CREATE VIEW cuda_gpu_kern_gb_sum AS
WITH sums AS MATERIALIZED (
    SELECT
        report_id,
        sum(dur_ns)::BIGINT AS total_time_ns,
        count(*) AS instances,
        round_tenth(avg(dur_ns)) AS avg_ns,
        round_tenth(median(dur_ns)) AS med_ns,
        min(dur_ns) AS min_ns,
        max(dur_ns) AS max_ns,
        nsys_stddev(dur_ns) AS stddev_ns,
        printf('%4d %4d %4d', grid_x, grid_y, grid_z) AS gridxyz,
        printf('%4d %4d %4d', block_x, block_y, block_z) AS blockxyz,
        demangled AS name
    FROM nsys_kernels
    GROUP BY report_id, demangled, grid_x, grid_y, grid_z, block_x, block_y, block_z
)
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
    gridxyz,
    blockxyz,
    name
FROM sums
ORDER BY report_id, total_time_ns DESC, name, gridxyz, blockxyz;
