-- GPU operations by what they do: class 1 computes, 2 communicates, 3 transfers.
CREATE VIEW _gpu_ops AS
SELECT
    t.track,
    CASE
        WHEN l.kind IN ('memcpy', 'memset') THEN 3
        WHEN l.kind = 'kernel' AND is_communication(l.name) THEN 2
        ELSE 1
    END::TINYINT AS class,
    l.start_ns,
    l.end_ns,
    l.pid,
    l.tid,
    l.correlation_id,
    l.api_start_ns,
    l.api_end_ns
FROM launches AS l
JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid IS NOT DISTINCT FROM l.pid AND t.cuda_device IS NOT DISTINCT FROM l.device;
