-- Speed of light of each launch: how close it comes to the peak rates of the hardware.
-- Memory SOL is not the largest of DRAM, L2 and L1: L2-internal activity does not count towards
-- it, so the levels only say where.
--
-- report_id: report
-- launch_id: launch, counted from 0 in report order
-- kernel_name: function name
-- kernel_demangled: full demangled name
-- nvtx_path: enclosing NVTX ranges
-- grid: blocks as x,y,z
-- block: threads as x,y,z
-- duration_ns: gpu__time_duration.sum, ns
-- compute_sol_pct: sm__throughput.avg.pct_of_peak_sustained_elapsed, %
-- memory_sol_pct: gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed, %
-- max_sol_pct: the larger of the two, %; NULL unless both are known
-- dram_sol_pct: gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed, %
-- l2_sol_pct: lts__throughput.avg.pct_of_peak_sustained_elapsed, %
-- l1_sol_pct: l1tex__throughput.avg.pct_of_peak_sustained_active, %; of active, as ncu's header shows it
-- sm_clock_hz: gpc__cycles_elapsed.avg.per_second, Hz; what ncu prints as SM frequency
-- dram_clock_hz: dram__cycles_elapsed.avg.per_second, Hz
-- waves: launch__waves_per_multiprocessor, full waves of blocks
-- registers: registers per thread
-- theoretical_occupancy_pct: sm__maximum_warps_per_active_cycle_pct, %
-- achieved_occupancy_pct: sm__warps_active.avg.pct_of_peak_sustained_active, %
CREATE VIEW kernel_sol AS
WITH wide AS (
    SELECT
        report_id,
        launch_id,
        max(value) FILTER (WHERE metric = 'sm__throughput.avg.pct_of_peak_sustained_elapsed') AS compute_sol_pct,
        max(value) FILTER (WHERE metric = 'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed') AS memory_sol_pct,
        max(value) FILTER (WHERE metric IN ('gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed', 'dram__throughput.avg.pct_of_peak_sustained_elapsed')) AS dram_sol_pct,
        max(value) FILTER (WHERE metric = 'lts__throughput.avg.pct_of_peak_sustained_elapsed') AS l2_sol_pct,
        max(value) FILTER (WHERE metric = 'l1tex__throughput.avg.pct_of_peak_sustained_active') AS l1_sol_pct,
        max(value) FILTER (WHERE metric = 'gpc__cycles_elapsed.avg.per_second') AS sm_clock_hz,
        max(value) FILTER (WHERE metric = 'dram__cycles_elapsed.avg.per_second') AS dram_clock_hz,
        max(value) FILTER (WHERE metric = 'launch__waves_per_multiprocessor') AS waves,
        max(value) FILTER (WHERE metric = 'launch__registers_per_thread') AS registers,
        max(value) FILTER (WHERE metric = 'sm__maximum_warps_per_active_cycle_pct') AS theoretical_occupancy_pct,
        max(value) FILTER (WHERE metric = 'sm__warps_active.avg.pct_of_peak_sustained_active') AS achieved_occupancy_pct
    FROM ncu_metrics
    GROUP BY report_id, launch_id
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
    w.compute_sol_pct,
    w.memory_sol_pct,
    -- greatest() passes over NULL, but the larger of a known and an unknown number is unknown.
    CASE WHEN w.compute_sol_pct >= w.memory_sol_pct THEN w.compute_sol_pct ELSE w.memory_sol_pct + 0 * w.compute_sol_pct END AS max_sol_pct,
    w.dram_sol_pct,
    w.l2_sol_pct,
    w.l1_sol_pct,
    w.sm_clock_hz,
    w.dram_clock_hz,
    w.waves,
    w.registers::BIGINT AS registers,
    w.theoretical_occupancy_pct,
    w.achieved_occupancy_pct
FROM ncu_launches AS l
LEFT JOIN wide AS w USING (report_id, launch_id)
ORDER BY l.report_id, l.launch_id;
