-- Where optimising pays: kernels of a timeline joined to ncu launches by (name, grid, block).
-- Headroom is GPU time x (1 - max SOL): an upper bound on the saving, never a promise, since no
-- kernel runs at 100 %.  Kernels that ncu did not profile stay, with NULLs.
--
-- report_id: nsys report
-- ncu_report_id: ncu report of the same run; NULL where there is none
-- name: kernel name with template arguments
-- grid: blocks as x,y,z
-- block: threads as x,y,z
-- instances: executions on the timeline
-- total_time_ns: sum of their durations, ns
-- time_pct: share of all kernel time of the report, %
-- matched: whether ncu profiled this (name, grid, block)
-- ncu_launches: launches of it in the ncu report
-- compute_sol_pct: compute SOL, mean over those launches weighted by duration, %
-- memory_sol_pct: memory SOL, likewise, %
-- max_sol_pct: larger of the two for each launch, likewise, %
-- headroom_pct: share of all kernel time that could be saved at most, %
-- headroom_ns: the same in ns
CREATE VIEW kernel_headroom AS
WITH timeline AS (
    SELECT
        report_id,
        demangled AS name,
        concat_ws(',', grid_x, grid_y, grid_z) AS grid,
        concat_ws(',', block_x, block_y, block_z) AS block,
        count(*) AS instances,
        sum(dur_ns)::BIGINT AS total_time_ns
    FROM nsys_kernels
    GROUP BY ALL
),
profiled AS (
    SELECT
        report_id AS ncu_report_id,
        kernel_demangled AS name,
        grid,
        block,
        count(*) AS ncu_launches,
        sum(compute_sol_pct * duration_ns) / nullif(sum(duration_ns) FILTER (WHERE compute_sol_pct IS NOT NULL), 0) AS compute_sol_pct,
        sum(memory_sol_pct * duration_ns) / nullif(sum(duration_ns) FILTER (WHERE memory_sol_pct IS NOT NULL), 0) AS memory_sol_pct,
        sum(max_sol_pct * duration_ns) / nullif(sum(duration_ns) FILTER (WHERE max_sol_pct IS NOT NULL), 0) AS max_sol_pct
    FROM kernel_sol
    GROUP BY ALL
),
shares AS (
    SELECT *, 100.0 * total_time_ns / nullif(sum(total_time_ns) OVER (PARTITION BY report_id), 0) AS time_pct
    FROM timeline
)
SELECT
    t.report_id,
    pair.ncu_report_id,
    t.name,
    t.grid,
    t.block,
    t.instances,
    t.total_time_ns,
    t.time_pct,
    p.ncu_launches IS NOT NULL AS matched,
    p.ncu_launches,
    p.compute_sol_pct,
    p.memory_sol_pct,
    p.max_sol_pct,
    t.time_pct * greatest(0, 1 - p.max_sol_pct / 100) AS headroom_pct,
    round(t.total_time_ns * greatest(0, 1 - p.max_sol_pct / 100))::BIGINT AS headroom_ns
FROM shares AS t
JOIN _report_pairs AS pair USING (report_id)
LEFT JOIN profiled AS p
    ON p.ncu_report_id = pair.ncu_report_id AND p.name = t.name AND p.grid = t.grid AND p.block = t.block
ORDER BY t.report_id, pair.ncu_report_id, headroom_ns DESC NULLS LAST, t.total_time_ns DESC, t.name, t.grid, t.block;
