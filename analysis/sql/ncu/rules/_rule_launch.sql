-- NVIDIA's rules on occupancy and launch: TheoreticalOccupancy, AchievedOccupancy, LaunchConfiguration,
-- WorkloadImbalance (of SMs).
CREATE VIEW _rule_launch AS
WITH launches AS (
    SELECT
        w.*,
        o.full_waves,
        o.tail_blocks,
        s.cap,
        100 * w.scheduler_warps_theoretical / nullif(w.scheduler_warps_peak, 0) AS theoretical_pct
    FROM kernel_metrics AS w
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    LEFT JOIN (SELECT DISTINCT report_id, launch_id, cap FROM _rule_issue) AS s USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    'TheoreticalOccupancy' AS rule,
    'Occupancy' AS section,
    NULL::VARCHAR AS title,
    NULL::VARCHAR AS subject,
    'OPT' AS type,
    CASE WHEN cap IS NULL THEN 'local' ELSE 'global' END AS speedup_kind,
    least(100 - theoretical_occupancy_pct, cap) AS speedup_pct,
    'sm__maximum_warps_per_active_cycle_pct' AS metric,
    theoretical_occupancy_pct AS value,
    threshold('rule.occupancy_pct') AS threshold
FROM launches
WHERE theoretical_occupancy_pct < threshold('rule.occupancy_pct')
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'AchievedOccupancy' AS rule,
    'Occupancy' AS section,
    'OPT' AS type,
    CASE WHEN cap IS NULL THEN 'local' ELSE 'global' END AS speedup_kind,
    least(
        100 * (theoretical_occupancy_pct - achieved_occupancy_pct) / nullif(theoretical_occupancy_pct, 0),
        cap
    ) AS speedup_pct,
    'theoretical - achieved occupancy, points' AS metric,
    theoretical_occupancy_pct - achieved_occupancy_pct AS value,
    threshold('rule.achieved_gap_points') AS threshold
FROM launches
WHERE theoretical_occupancy_pct - achieved_occupancy_pct > threshold('rule.achieved_gap_points')
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'LaunchConfiguration' AS rule,
    'LaunchStats' AS section,
    'Block Size' AS title,
    'Block Size' AS subject,
    'OPT' AS type,
    'global' AS speedup_kind,
    100 / nullif(ceil(block_size / 32), 0) * (1 - (block_size % 32) / 32) AS speedup_pct,
    'launch__block_size' AS metric,
    block_size AS value,
    32 AS threshold
FROM launches
WHERE block_size % 32 != 0
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'LaunchConfiguration' AS rule,
    'LaunchStats' AS section,
    'Small Grid' AS title,
    CASE
        WHEN grid_size < sm_count THEN 'fewer blocks than SMs'
        ELSE 'fewer than two blocks an SM'
    END AS subject,
    'OPT' AS type,
    CASE WHEN grid_size < sm_count THEN 'global' END AS speedup_kind,
    CASE WHEN grid_size < sm_count THEN 100 * (sm_count - grid_size) / nullif(sm_count, 0) END AS speedup_pct,
    'launch__grid_size' AS metric,
    grid_size AS value,
    CASE WHEN grid_size < sm_count THEN sm_count ELSE 2 * sm_count END AS threshold
FROM launches
WHERE grid_size < 2 * sm_count
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'LaunchConfiguration' AS rule,
    'LaunchStats' AS section,
    'Tail Effect' AS title,
    'Tail Effect' AS subject,
    'OPT' AS type,
    'global' AS speedup_kind,
    100 / (1 + full_waves) AS speedup_pct,
    'launch__waves_per_multiprocessor' AS metric,
    waves AS value,
    1 / threshold('rule.tail_share') AS threshold
FROM launches
WHERE full_waves >= 1 AND tail_blocks > 0 AND 1 / (1 + full_waves) >= threshold('rule.tail_share')
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'WorkloadImbalance' AS rule,
    'WorkloadDistribution' AS section,
    'SMs Workload Imbalance' AS title,
    'sm' AS subject,
    'OPT' AS type,
    'global' AS speedup_kind,
    100 * (sm_active_cycles_max - sm_active_cycles) / nullif(sm_active_cycles_max, 0)
        * sm_active_cycles / nullif(sm_elapsed_cycles, 0) AS speedup_pct,
    'sm__cycles_active: 1 - avg / max' AS metric,
    (sm_active_cycles_max - sm_active_cycles) / nullif(sm_active_cycles_max, 0) AS value,
    threshold('rule.imbalance') AS threshold
FROM launches
WHERE (sm_active_cycles_max - sm_active_cycles) / nullif(sm_active_cycles_max, 0)
    * sm_active_cycles / nullif(sm_elapsed_cycles, 0) >= threshold('rule.imbalance');
