-- Roofs of the kernel configurations that ncu profiled, by the timeline to which the ncu reports belong.
CREATE VIEW _profiled_roofs AS
SELECT
    pair.report_id,
    kernel_key(s.kernel_demangled) AS key,
    s.grid,
    s.block,
    r.roof,
    time_weighted(r.pct, s.duration_ns) AS pct,
    of_longest(o.blocks_per_sm, s.duration_ns, s.report_id, s.launch_id) AS blocks_per_sm
FROM kernel_roofs AS r
JOIN kernel_sol AS s ON s.report_id = r.report_id AND s.launch_id = r.launch_id
JOIN kernel_occupancy AS o ON o.report_id = r.report_id AND o.launch_id = r.launch_id
JOIN _report_pairs AS pair ON pair.ncu_report_id = s.report_id
GROUP BY pair.report_id, kernel_key(s.kernel_demangled), s.grid, s.block, r.roof;
