-- GPU operations by class: compute, communication or transfer.
CREATE VIEW _classed_ops AS
SELECT
    t.track,
    CASE
        WHEN l.kind IN ('memcpy', 'memset') THEN 'transfer'
        WHEN l.kind = 'kernel'
            AND l.name IN (SELECT name FROM _names WHERE kind = 'kernel' AND is_communication(name))
            THEN 'communication'
        ELSE 'compute'
    END::ENUM ('compute', 'communication', 'transfer') AS class,
    l.start_ns,
    l.end_ns,
    l.op_id,
    l.call_id,
    l.pid,
    l.tid,
    l.api_start_ns,
    -- A call without a recorded end lasted at least until its operation began.
    CASE
        WHEN l.api_start_ns IS NOT NULL THEN coalesce(l.api_end_ns, greatest(l.api_start_ns, l.start_ns))
    END AS api_end_ns
FROM launches AS l
JOIN _tracks AS t
    ON t.report_id = l.report_id
        AND t.pid IS NOT DISTINCT FROM l.pid
        AND t.cuda_device IS NOT DISTINCT FROM l.device
WHERE l.start_ns <= l.end_ns;
