-- Long idle intervals that are a cost of launching: the intervals recur before the same kernel, and contain
-- no waits, input from the host, OS calls or ranges without launches. Such intervals occur with libraries
-- that prepare a kernel for every new shape. Before a kernel that is compiled into the program, and in a
-- program without other kernels, the program itself does other work.
-- @materialize
CREATE VIEW _slow_launches AS
WITH recurring AS (
    SELECT n.track, n.op_id, l.report_id, l.kind, l.name, coalesce(l.demangled, l.name) AS demangled
    FROM _gap_names AS n
    JOIN _gap_parts AS p USING (track, op_id)
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = n.op_id
    WHERE NOT p.drained
        AND l.kind != 'memcpy'
        AND coalesce(n.range_launches, true)
        AND coalesce(2 * n.os_ns < n.dur_ns, true)
        AND NOT EXISTS (FROM _rebuilt AS b WHERE b.track = n.track AND b.op_id = n.op_id)
        AND NOT EXISTS (
            FROM _built AS c
            WHERE c.track = n.track AND c.op_id = n.op_id AND 2 * c.built_ns >= n.dur_ns
        )
    QUALIFY count(*) OVER (PARTITION BY n.track, demangled) >= threshold('timeline.recurring_gaps')
),
prepared AS (
    SELECT DISTINCT report_id, demangled
    FROM kernel_names
    WHERE NOT is_built_in(library)
)
SELECT track, op_id
FROM recurring
WHERE CASE
    WHEN kind = 'kernel' THEN (report_id, demangled) IN (SELECT (report_id, demangled) FROM prepared)
    ELSE report_id IN (SELECT report_id FROM prepared)
END;
