-- Speed of light (SOL) of each launch: achieved throughput as a percentage of the hardware's peak. Memory SOL
-- excludes activity inside the L2, so it is not the maximum of the DRAM, L2 and L1 throughput. The throughput
-- of these levels only indicates the limiter; for the constituents of each SOL, see kernel_sol_breakdown.
--
-- If ncu collected the main constituents of both SOLs instead of the SOLs themselves, the largest constituent
-- replaces the SOL. On an H200, the two values are equal if the SOL is above 50 %, and differ by at most 5
-- percentage points otherwise. If ncu collected only the constituents that fit in one pass, the true SOLs
-- may be higher.
--
-- A SOL above 110 % is NULL, because the measurement must be wrong. kernel_metrics has the recorded value.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- kernel_demangled VARCHAR: full demangled name
-- nvtx_path VARCHAR: NVTX ranges that enclose the launch
-- grid VARCHAR: grid dimensions in blocks, as x,y,z
-- block VARCHAR: block dimensions in threads, as x,y,z
-- duration_ns DOUBLE: gpu__time_duration.sum, ns
-- compute_sol_pct DOUBLE: sm__throughput.avg.pct_of_peak_sustained_elapsed, %
-- memory_sol_pct DOUBLE: gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed, %
-- of_units BOOLEAN: whether each SOL is the largest of its main constituents, because ncu did not collect the
--   SOL itself
-- one_pass BOOLEAN: whether only the constituents that fit in one pass were collected, so that the true
--   SOLs may be higher
-- max_sol_pct DOUBLE: larger of compute SOL and memory SOL, %; NULL unless both are known
-- headroom_ns DOUBLE: SOL headroom: duration x (1 - max SOL), the time that the same work would save at 100 %
--   SOL, ns; NULL if either SOL is unknown
-- dram_sol_pct DOUBLE: gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed, %
-- l2_sol_pct DOUBLE: lts__throughput.avg.pct_of_peak_sustained_elapsed, %
-- l1_sol_pct DOUBLE: l1tex__throughput.avg.pct_of_peak_sustained_active, %; relative to active cycles, as in
--   ncu's header
-- l1_elapsed_sol_pct DOUBLE: l1tex__throughput.avg.pct_of_peak_sustained_elapsed, %; comparable with the
--   throughput of L2 and DRAM
-- shared_sol_pct DOUBLE: shared-memory wavefront throughput, % of peak
-- mem_busy_pct DOUBLE: Mem Busy: internal activity of caches and DRAM, %
-- max_bandwidth_pct DOUBLE: Max Bandwidth: utilization of the interconnects between SM, L2 and DRAM, %
-- mem_pipes_busy_pct DOUBLE: Mem Pipes Busy: utilization of the SMs' memory pipes, %
-- sm_clock_hz DOUBLE: gpc__cycles_elapsed.avg.per_second, Hz; ncu shows it as SM Frequency
-- sm_unit_clock_hz DOUBLE: sm__cycles_elapsed.avg.per_second, Hz; the SM clock, measured in another pass
-- l1_clock_hz DOUBLE: l1tex__cycles_elapsed.avg.per_second, Hz
-- l2_clock_hz DOUBLE: lts__cycles_elapsed.avg.per_second, Hz
-- dram_clock_hz DOUBLE: dram__cycles_elapsed.avg.per_second, Hz
-- clock_drift_pct DOUBLE: relative difference between the SM clocks of two passes, %; NULL if a clock is
--   missing
-- passes_disagree BOOLEAN: whether the SM clocks of two passes differ by more than the threshold (3 %); if
--   so, percentages are more reliable than rates
-- waves DOUBLE: launch__waves_per_multiprocessor: blocks in the grid / blocks that fit on the GPU at once
-- registers BIGINT: registers per thread
-- theoretical_occupancy_pct DOUBLE: sm__maximum_warps_per_active_cycle_pct, %
-- achieved_occupancy_pct DOUBLE: sm__warps_active.avg.pct_of_peak_sustained_active, %
CREATE VIEW kernel_sol AS
WITH units AS (
    SELECT
        report_id,
        launch_id,
        max(pct) FILTER (side = 'compute') AS compute_pct,
        max(pct) FILTER (side = 'memory') AS memory_pct,
        NOT bool_and(whole) AS one_pass
    FROM _sol_of_units
    GROUP BY report_id, launch_id
),
sols AS (
    SELECT
        report_id,
        launch_id,
        possible_pct(coalesce(w.compute_sol_pct, u.compute_pct)) AS compute_pct,
        possible_pct(coalesce(w.memory_sol_pct, u.memory_pct)) AS memory_pct,
        u.compute_pct IS NOT NULL AS of_units,
        u.one_pass
    FROM kernel_metrics AS w
    LEFT JOIN units AS u USING (report_id, launch_id)
)
SELECT
    l.report_id,
    l.launch_id,
    l.kernel_name,
    l.kernel_demangled,
    l.nvtx_path,
    concat_ws(',', l.grid_x, l.grid_y, l.grid_z) AS grid,
    concat_ws(',', l.block_x, l.block_y, l.block_z) AS block,
    l.duration_ns,
    s.compute_pct AS compute_sol_pct,
    s.memory_pct AS memory_sol_pct,
    coalesce(s.of_units, false) AS of_units,
    coalesce(s.one_pass, false) AS one_pass,
    -- greatest() ignores NULL, but the larger of a known and an unknown number is unknown.
    CASE
        WHEN s.compute_pct >= s.memory_pct THEN s.compute_pct
        ELSE s.memory_pct + 0 * s.compute_pct
    END AS max_sol_pct,
    l.duration_ns * headroom(max_sol_pct) / 100 AS headroom_ns,
    possible_pct(w.dram_sol_pct) AS dram_sol_pct,
    possible_pct(w.l2_sol_pct) AS l2_sol_pct,
    w.l1_active_sol_pct AS l1_sol_pct,
    possible_pct(w.l1_elapsed_sol_pct) AS l1_elapsed_sol_pct,
    w.shared_sol_pct,
    w.mem_busy_pct,
    w.max_bandwidth_pct,
    w.mem_pipes_busy_pct,
    w.gpc_clock_hz AS sm_clock_hz,
    w.sm_clock_hz AS sm_unit_clock_hz,
    w.l1_clock_hz,
    w.l2_clock_hz,
    w.dram_clock_hz,
    100 * (w.sm_clock_hz - w.gpc_clock_hz) / nullif(w.gpc_clock_hz, 0) AS clock_drift_pct,
    abs(
        100 * (w.sm_clock_hz - w.gpc_clock_hz) / nullif(w.gpc_clock_hz, 0)
    ) > threshold('clock.disagree_pct') AS passes_disagree,
    w.waves,
    w.registers::BIGINT AS registers,
    w.theoretical_occupancy_pct,
    w.achieved_occupancy_pct
FROM ncu_launches AS l
LEFT JOIN kernel_metrics AS w USING (report_id, launch_id)
LEFT JOIN sols AS s USING (report_id, launch_id)
ORDER BY l.report_id, l.launch_id;
