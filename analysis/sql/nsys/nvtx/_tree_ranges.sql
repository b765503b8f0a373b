-- Ranges that launched work, on the eight outermost levels, with their position, the position of the
-- enclosing range, which may be on the waiting thread (their own if there is none), and the numbers of their
-- names; 0 represents an empty name. A duration or a time of -1 is unknown.
CREATE VIEW _tree_ranges AS
SELECT
    (p.first + r.range_id)::INTEGER AS place,
    (p.first + coalesce(r.enclosing, r.caller, r.range_id))::INTEGER AS around,
    coalesce(r.tree_level, r.level)::TINYINT AS level,
    coalesce(d.number, 0) AS domain,
    coalesce(n.number, 0) AS name,
    coalesce(r.tree_time_ns, r.gpu_time_ns) AS gpu_time_ns,
    coalesce(r.backward_time_ns, -1) AS backward_ns,
    coalesce(r.dur_ns, -1) AS dur_ns
FROM nsys_nvtx_ranges AS r
JOIN _range_places AS p ON p.report_id = r.report_id
LEFT JOIN _range_stems AS d ON d.kind = 'domain' AND d.name = r.domain
LEFT JOIN _range_stems AS n ON n.kind = 'name' AND n.name = r.name
WHERE coalesce(r.tree_level, r.level) < 8 AND coalesce(r.tree_time_ns, r.gpu_time_ns) IS NOT NULL;
