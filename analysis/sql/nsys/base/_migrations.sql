-- Migrations of unified memory on each GPU. A running kernel may wait for pages that migrate to the GPU on
-- demand, and for pages that are evicted to make room for them, but not for pages that the program prefetches
-- or that the CPU requests. If the cause is not recorded, the direction decides.
CREATE VIEW _migrations AS
SELECT
    t.track,
    m.pid,
    m.start_ns,
    m.end_ns,
    m.bytes,
    m.address,
    m.operation LIKE '%-to-Device]' AS to_gpu,
    m.migration_cause AS cause,
    CASE
        WHEN m.migration_cause IN ('User prefetch', 'Access counters') THEN false
        WHEN m.migration_cause = 'Eviction' THEN true
        ELSE to_gpu
    END AS delays
FROM nsys_memory_ops AS m
JOIN _tracks AS t
    ON t.report_id = m.report_id
        AND t.pid IS NOT DISTINCT FROM m.pid
        AND t.cuda_device IS NOT DISTINCT FROM m.device
WHERE is_migration(m.operation) AND m.start_ns <= m.end_ns;
