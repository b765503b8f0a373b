-- How much GPU work is attributed to an NVTX range, per process: on the launching thread, or
-- through the main thread (autograd).  Statements about ranges hold for that share only.
--
-- report_id VARCHAR: report
-- pid BIGINT: process
-- operations BIGINT: number of GPU operations
-- own_thread BIGINT: of these, launched within a range of the launching thread
-- main_thread BIGINT: launched outside any range by another thread, while the main thread was in a range
-- without_range BIGINT: the rest
-- own_thread_time_pct DOUBLE: share of the operations' time, %; NULL if they have none
-- main_thread_time_pct DOUBLE: likewise
-- without_range_time_pct DOUBLE: likewise
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
