-- How much GPU work can be attributed to NVTX ranges in each process: through the launching thread, or
-- through the thread that waits for it (for autograd). Views that group by NVTX range cover only this part of
-- the work.
--
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- operations BIGINT: number of GPU operations
-- own_thread BIGINT: number of operations launched within a range on the launching thread
-- waiting_thread BIGINT: number of operations that a thread launched outside its own ranges while it worked
--   for the only other thread with an open range
-- without_range BIGINT: number of all other operations
-- several_threads BIGINT: number of operations in without_range that were launched while several other
--   threads had an open range
-- own_thread_time_pct DOUBLE: time of own_thread operations as a percentage of all operations' time; NULL
--   if the time is 0
-- waiting_thread_time_pct DOUBLE: time of waiting_thread operations as a percentage of all operations' time;
--   NULL if the time is 0
-- without_range_time_pct DOUBLE: time of the other operations as a percentage of all operations' time;
--   NULL if the time is 0
CREATE VIEW nvtx_attribution AS
SELECT
    report_id,
    pid,
    count(*) AS operations,
    count(*) FILTER (range_source = 'own thread') AS own_thread,
    count(*) FILTER (range_source != 'own thread') AS waiting_thread,
    count(*) FILTER (range_source IS NULL) AS without_range,
    count(*) FILTER (no_range_reason = 'several threads') AS several_threads,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source = 'own thread'), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS own_thread_time_pct,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source != 'own thread'), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS waiting_thread_time_pct,
    100.0 * coalesce(
        sum(end_ns - start_ns) FILTER (range_source IS NULL), 0
    ) / nullif(sum(end_ns - start_ns), 0) AS without_range_time_pct
FROM launches
GROUP BY report_id, pid
ORDER BY report_id, pid;
