-- GPU work attributed to NVTX ranges, per process: by the launching thread, or through the main thread (for
-- autograd). Results by NVTX range only cover this share of the work.
--
-- report_id VARCHAR: report
-- pid BIGINT: process
-- operations BIGINT: number of GPU operations
-- own_thread BIGINT: number of operations launched within a range of the launching thread
-- main_thread BIGINT: number of operations launched outside any range by another thread, while the main
--   thread was in a range
-- without_range BIGINT: number of all other operations
-- own_thread_time_pct DOUBLE: share of own_thread operations in the time of all operations, %; NULL if the
--   time is 0
-- main_thread_time_pct DOUBLE: share of main_thread operations in the time of all operations, %; NULL if the
--   time is 0
-- without_range_time_pct DOUBLE: share of the other operations in the time of all operations, %; NULL if the
--   time is 0
CREATE VIEW nvtx_attribution AS
SELECT
    report_id,
    pid,
    count(*) AS operations,
    count(*) FILTER (range_source = 'own thread') AS own_thread,
    count(*) FILTER (range_source = 'main thread') AS main_thread,
    count(*) FILTER (range_source IS NULL) AS without_range,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source = 'own thread'), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS own_thread_time_pct,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source = 'main thread'), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS main_thread_time_pct,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source IS NULL), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS without_range_time_pct
FROM launches
GROUP BY report_id, pid
ORDER BY report_id, pid;
