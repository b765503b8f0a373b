-- SOL headroom of each kernel. Kernels on a timeline are matched to ncu launches by name, grid and block,
-- regardless of how the ncu export spells the name. Headroom is GPU time x (1 - max SOL): the time that the
-- same work would save at 100 % SOL. Another algorithm, data type or tile size may save more
-- (kernel_findings). Kernels that ncu did not profile are listed with NULLs. Launches that take much longer
-- or shorter than the profiled launches are also listed as not profiled, because persistent kernels may do
-- different work with the same grid.
--
-- report_id VARCHAR: nsys report
-- ncu_reports VARCHAR[]: ncu reports that contain this kernel: reports of the same configuration of a run, or
--   manually ingested reports of the same program on the same GPU
-- name VARCHAR: kernel name with template arguments
-- grid VARCHAR: grid dimensions in blocks, as x,y,z
-- block VARCHAR: block dimensions in threads, as x,y,z
-- instances BIGINT: number of executions on the timeline; matched and unmatched launches have separate rows
-- total_time_ns BIGINT: sum of the durations, ns
-- time_pct DOUBLE: share of the report's total kernel time, %
-- matched BOOLEAN: whether ncu profiled a launch with this name, grid and block and a similar duration
-- ncu_launches BIGINT: number of matching launches in the ncu reports
-- compute_sol_pct DOUBLE: duration-weighted mean compute SOL of the ncu launches, %
-- memory_sol_pct DOUBLE: duration-weighted mean memory SOL of the ncu launches, %
-- bound VARCHAR: bound of the longest ncu launch, as in kernel_bottleneck
-- max_sol_pct DOUBLE: duration-weighted mean of each launch's SOL (the larger of compute and memory SOL), %
-- headroom_pct DOUBLE: SOL headroom, % of the report's total kernel time
-- headroom_ns BIGINT: SOL headroom, ns
CREATE VIEW kernel_headroom AS
WITH keys AS (
    SELECT demangled, kernel_key(demangled) AS key
    FROM (SELECT DISTINCT demangled FROM nsys_kernels)
),
launches AS (
    SELECT
        report_id,
        demangled,
        concat_ws(',', grid_x, grid_y, grid_z) AS grid,
        concat_ws(',', block_x, block_y, block_z) AS block,
        dur_ns
    FROM nsys_kernels
),
timeline AS (
    SELECT
        l.report_id,
        l.demangled AS name,
        l.grid,
        l.block,
        k.key,
        takes_as_long(l.dur_ns, p.min_ns, p.max_ns) AS matched,
        count(*) AS instances,
        sum(l.dur_ns)::BIGINT AS total_time_ns
    FROM launches AS l
    JOIN keys AS k USING (demangled)
    LEFT JOIN _profiled_kernels AS p
        ON p.report_id = l.report_id AND p.key = k.key AND p.grid = l.grid AND p.block = l.block
    GROUP BY l.report_id, l.demangled, l.grid, l.block, k.key, matched
),
shares AS (
    SELECT
        t.* EXCLUDE (key),
        100.0 * t.total_time_ns / nullif(sum(t.total_time_ns) OVER (PARTITION BY t.report_id), 0) AS time_pct,
        headroom(p.max_sol_pct) / 100 AS headroom,
        p.* EXCLUDE (report_id, key, grid, block, subclass, min_ns, max_ns)
    FROM timeline AS t
    LEFT JOIN _profiled_kernels AS p
        ON t.matched AND p.report_id = t.report_id AND p.key = t.key AND p.grid = t.grid AND p.block = t.block
)
SELECT
    report_id,
    ncu_reports,
    name,
    grid,
    block,
    instances,
    total_time_ns,
    time_pct,
    matched,
    ncu_launches,
    compute_sol_pct,
    memory_sol_pct,
    bound,
    max_sol_pct,
    time_pct * headroom AS headroom_pct,
    round(total_time_ns * headroom)::BIGINT AS headroom_ns
FROM shares
ORDER BY report_id, headroom_ns DESC NULLS LAST, total_time_ns DESC, name, grid, block, matched;
