-- Kernel configurations that ncu profiled, by the timeline to which the ncu reports belong.
-- @materialize
CREATE VIEW _profiled_kernels AS
SELECT
    pair.report_id,
    list(DISTINCT s.report_id ORDER BY s.report_id) AS ncu_reports,
    kernel_key(s.kernel_demangled) AS key,
    s.grid,
    s.block,
    count(*) AS ncu_launches,
    min(s.duration_ns) AS min_ns,
    max(s.duration_ns) AS max_ns,
    time_weighted(s.compute_sol_pct, s.duration_ns) AS compute_sol_pct,
    time_weighted(s.memory_sol_pct, s.duration_ns) AS memory_sol_pct,
    of_longest(b.bound, s.duration_ns, s.report_id, s.launch_id) AS bound,
    of_longest(b.subclass, s.duration_ns, s.report_id, s.launch_id) AS subclass,
    time_weighted(s.max_sol_pct, s.duration_ns) AS max_sol_pct
FROM kernel_sol AS s
JOIN kernel_bottleneck AS b ON b.report_id = s.report_id AND b.launch_id = s.launch_id
JOIN _report_pairs AS pair ON pair.ncu_report_id = s.report_id
GROUP BY pair.report_id, kernel_key(s.kernel_demangled), s.grid, s.block;
