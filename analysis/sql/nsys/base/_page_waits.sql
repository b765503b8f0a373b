-- Intervals in which kernels may wait for pages of unified memory: migrations, and groups of page faults
-- while the driver handles them.
-- @materialize
CREATE VIEW _page_waits AS
SELECT track, pid, start_ns, end_ns
FROM _migrations
WHERE delays
UNION ALL
SELECT t.track, f.pid, f.start_ns, f.end_ns
FROM nsys_gpu_page_faults AS f
JOIN _tracks AS t
    ON t.report_id = f.report_id
        AND t.pid IS NOT DISTINCT FROM f.pid
        AND t.cuda_device IS NOT DISTINCT FROM f.device
WHERE f.start_ns <= f.end_ns;
