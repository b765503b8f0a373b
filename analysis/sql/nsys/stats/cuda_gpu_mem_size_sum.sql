-- Bytes copied or set by memory operations, by operation, matching `nsys stats --report
-- cuda_gpu_mem_size_sum`.
--
-- report_id VARCHAR: report
-- total_mb DOUBLE: total size, MB (decimal), rounded to 0.001 as in nsys
-- count BIGINT: number of operations
-- avg_mb DOUBLE: mean size, MB
-- med_mb DOUBLE: median size (mean of the two middle values if the count is even), MB
-- min_mb DOUBLE: smallest size, MB
-- max_mb DOUBLE: largest size, MB
-- stddev_mb DOUBLE: sample standard deviation of the size (divisor n - 1; 0 if there is only one
--   operation), MB
-- operation VARCHAR: copy direction or memset
CREATE VIEW cuda_gpu_mem_size_sum AS
SELECT
    report_id,
    printf('%.3f', sum(bytes) / 1e6)::DOUBLE AS total_mb,
    count(*) AS count,
    printf('%.3f', avg(bytes) / 1e6)::DOUBLE AS avg_mb,
    printf('%.3f', median(bytes) / 1e6)::DOUBLE AS med_mb,
    printf('%.3f', min(bytes) / 1e6)::DOUBLE AS min_mb,
    printf('%.3f', max(bytes) / 1e6)::DOUBLE AS max_mb,
    printf('%.3f', coalesce(exact_stddev(bytes), 0) / 1e6)::DOUBLE AS stddev_mb,
    operation
FROM nsys_memory_ops
GROUP BY report_id, operation
ORDER BY report_id, sum(bytes) DESC, operation;
