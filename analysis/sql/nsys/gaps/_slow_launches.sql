-- Long idle intervals that are the cost of launching: time and again before the same kernel, with no
-- wait, no input from the host, no OS call and no range without launches in which the host did
-- something else.  Libraries that prepare a kernel for every new shape make them.
-- @materialize
CREATE VIEW _slow_launches AS
SELECT n.track, n.op_id
FROM _gap_names AS n
JOIN _gap_parts AS p USING (track, op_id)
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = n.op_id
WHERE NOT p.drained
    AND l.kind != 'memcpy'
    AND coalesce(n.range_launches, true)
    AND coalesce(2 * n.os_ns < n.dur_ns, true)
QUALIFY count(*) OVER (PARTITION BY n.track, coalesce(l.demangled, l.name))
    >= threshold('timeline.recurring_gaps');
