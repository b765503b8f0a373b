-- Operations after an idle interval whose launching call took long because it was the first use of
-- a kernel or graph in its process: the driver loads the code.
-- @materialize
CREATE VIEW _loading_launches AS
WITH long AS (
    SELECT g.track, g.op_id, l.report_id, l.pid, coalesce(l.demangled, l.name) AS name, l.api_start_ns
    FROM _gap_parts AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE g.launch_api_ns > 0
        AND l.kind IN ('kernel', 'graph')
        AND coalesce(l.api_end_ns, l.start_ns) - l.api_start_ns >= threshold('timeline.loading_ns')
),
uses AS (
    SELECT l.report_id, l.pid, coalesce(l.demangled, l.name) AS name,
        min(coalesce(l.api_start_ns, l.start_ns)) AS first_ns
    FROM launches AS l
    WHERE l.kind IN ('kernel', 'graph') AND coalesce(l.demangled, l.name) IN (SELECT name FROM long)
    GROUP BY ALL
)
SELECT o.track, o.op_id
FROM long AS o
JOIN uses AS u
    ON u.report_id = o.report_id AND u.pid IS NOT DISTINCT FROM o.pid AND u.name = o.name
        AND u.first_ns = o.api_start_ns;
