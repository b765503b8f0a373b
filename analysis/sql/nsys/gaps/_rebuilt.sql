-- Idle intervals in which a kernel is built anew (_reloaded). A compiler's ranges are part of it there.
-- @materialize
CREATE VIEW _rebuilt AS
FROM _reloaded
UNION
SELECT n.track, n.op_id
FROM _gap_names AS n
JOIN _idle AS g USING (track, op_id)
SEMI JOIN _analysed USING (track, window_id)
SEMI JOIN _reloaded USING (track)
WHERE g.call_ns > g.start_ns AND is_compilation(n.range_name);
