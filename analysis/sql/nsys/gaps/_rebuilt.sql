-- Idle intervals in which a kernel is built anew (_reloaded) or a CUDA graph is built (_graph_builds). Where
-- kernels are built anew, a compiler's ranges are part of it.
-- @materialize
CREATE VIEW _rebuilt AS
FROM _reloaded
UNION
FROM _graph_builds
UNION
SELECT n.track, n.op_id
FROM _gap_names AS n
JOIN _idle AS g USING (track, op_id)
SEMI JOIN _analysed USING (track, window_id)
SEMI JOIN _reloaded USING (track)
WHERE g.call_ns > g.start_ns AND is_compilation(n.range_name);
