-- GPU operations by class: compute, communication or transfer. Whether a kernel communicates depends on its
-- namespaces as well, which only the full name contains.
CREATE VIEW _classed_ops AS
WITH names AS (
    SELECT n.name, n.number, is_migration(n.name) AS migrates,
        list(k.full_name)
            FILTER (is_communication(k.name, k.full_name)) AS communicating
    FROM _names AS n
    LEFT JOIN (
        SELECT DISTINCT name, coalesce(demangled, name) AS full_name FROM launches WHERE kind = 'kernel'
    ) AS k USING (name)
    WHERE n.kind = 'operation'
    GROUP BY n.name, n.number
)
SELECT
    l.track,
    CASE
        WHEN l.kind IN ('memcpy', 'memset') THEN 'transfer'
        WHEN l.kind = 'kernel' AND list_contains(n.communicating, coalesce(l.demangled, l.name))
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
    -- A call without a recorded end lasted at least up to the start of its operation.
    CASE
        WHEN l.api_start_ns IS NOT NULL THEN coalesce(l.api_end_ns, greatest(l.api_start_ns, l.start_ns))
    END AS api_end_ns,
    n.number AS name_number,
    coalesce(n.migrates, false) AS migrates
FROM _placed_launches AS l
LEFT JOIN names AS n ON n.name = l.name
WHERE l.start_ns <= l.end_ns;
