-- Results of NVIDIA's rules, recomputed from the metrics if the report contains the metrics that a rule
-- needs. Estimated speedups are shares of the run time and overlap: do not add them.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- rule VARCHAR: rule identifier, such as CPIStall
-- section VARCHAR: ncu section with the rule's metrics
-- title VARCHAR: title of NVIDIA's rule result; NULL if the result has no title
-- subject VARCHAR: subject of the rule result: a stall reason, a pipe or a kind of access; NULL for the whole
--   kernel
-- type VARCHAR: type of the rule result: OPT or INF, as in ncu
-- speedup_kind VARCHAR: local (speedup of the analyzed hardware unit), global (speedup of the kernel) or NULL
-- speedup_pct DOUBLE: speedup estimated with NVIDIA's formula: share of the run time that could be saved, %
-- metric VARCHAR: metric that the rule compares with the threshold
-- value DOUBLE: value of the metric
-- threshold DOUBLE: threshold with which the rule compares the metric
CREATE VIEW kernel_rules_recomputed AS
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
),
-- NVIDIA's rules for occupancy and launch: TheoreticalOccupancy, AchievedOccupancy, LaunchConfiguration,
-- WorkloadImbalance (of SMs).
rule_launch AS (
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
            ELSE 'fewer than two blocks per SM'
        END AS subject,
        'OPT' AS type,
        CASE WHEN grid_size < sm_count THEN 'global' END AS speedup_kind,
        CASE
            WHEN grid_size < sm_count THEN 100 * (sm_count - grid_size) / nullif(sm_count, 0)
        END AS speedup_pct,
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
        * sm_active_cycles / nullif(sm_elapsed_cycles, 0) >= threshold('rule.imbalance')
),
conflicts AS (
    SELECT
        report_id,
        launch_id,
        l1_active_sol_pct,
        'Load' AS op,
        shared_load_conflicts AS conflicts,
        shared_load_wavefronts AS wavefronts
    FROM kernel_metrics
    UNION ALL BY NAME
    SELECT
        report_id,
        launch_id,
        l1_active_sol_pct,
        'Store' AS op,
        shared_store_conflicts AS conflicts,
        shared_store_wavefronts AS wavefronts
    FROM kernel_metrics
),
busiest AS (
    -- The rule considers pipes that count active cycles.
    SELECT report_id, launch_id, first(pipe ORDER BY pct DESC, pipe) AS pipe, max(pct) AS pct
    FROM kernel_pipes
    WHERE pipe IN ('tensor', 'fma', 'fp64', 'alu')
    GROUP BY report_id, launch_id
),
-- NVIDIA's rules for pipes and memory units: HighPipeUtilization, SharedMemoryConflicts,
-- UncoalescedGlobalAccess, UncoalescedSharedAccess.
rule_units AS (
    SELECT
        report_id,
        launch_id,
        'SharedMemoryConflicts' AS rule,
        'MemoryWorkloadAnalysis_Tables' AS section,
        concat('Shared ', op, ' Bank Conflicts') AS title,
        op AS subject,
        'OPT' AS type,
        'global' AS speedup_kind,
        conflicts / nullif(wavefronts, 0) * l1_active_sol_pct AS speedup_pct,
        'wavefronts from bank conflicts' AS metric,
        conflicts / nullif(wavefronts, 0) AS value,
        threshold('rule.conflict_share') AS threshold
    FROM conflicts
    WHERE conflicts / nullif(wavefronts, 0) >= threshold('rule.conflict_share')
    UNION ALL BY NAME
    SELECT
        report_id,
        launch_id,
        'UncoalescedGlobalAccess' AS rule,
        'SourceCounters' AS section,
        'OPT' AS type,
        'global' AS speedup_kind,
        100 * l2_active_cycles / nullif(l2_elapsed_cycles, 0)
            * (global_sectors - global_sectors_ideal) / nullif(global_sectors, 0) AS speedup_pct,
        'memory_l2_theoretical_sectors_global beyond the ideal' AS metric,
        global_sectors - global_sectors_ideal AS value,
        0 AS threshold
    FROM kernel_metrics
    WHERE global_sectors > global_sectors_ideal
    UNION ALL BY NAME
    SELECT
        report_id,
        launch_id,
        'UncoalescedSharedAccess' AS rule,
        'SourceCounters' AS section,
        'OPT' AS type,
        'global' AS speedup_kind,
        100 * l1_active_cycles / nullif(l1_elapsed_cycles, 0)
            * (shared_source_wavefronts - shared_source_wavefronts_ideal)
            / nullif(shared_source_wavefronts, 0) AS speedup_pct,
        'memory_l1_wavefronts_shared beyond the ideal' AS metric,
        shared_source_wavefronts - shared_source_wavefronts_ideal AS value,
        0 AS threshold
    FROM kernel_metrics
    WHERE shared_source_wavefronts > shared_source_wavefronts_ideal
    UNION ALL BY NAME
    SELECT
        p.report_id,
        p.launch_id,
        'HighPipeUtilization' AS rule,
        'ComputeWorkloadAnalysis' AS section,
        CASE
            WHEN p.pct < threshold('rule.pipe_low_pct') THEN 'Low Utilization'
            WHEN p.pct < threshold('rule.pipe_high_pct') THEN 'Balanced'
            WHEN p.pct < threshold('rule.pipe_very_high_pct') THEN 'High Utilization'
            ELSE 'Very High Utilization'
        END AS title,
        p.pipe AS subject,
        CASE
            WHEN p.pct >= threshold('rule.pipe_low_pct') AND p.pct < threshold('rule.pipe_high_pct')
                THEN 'INF'
            ELSE 'OPT'
        END AS type,
        CASE WHEN p.pct < threshold('rule.pipe_low_pct') THEN 'local' END AS speedup_kind,
        CASE WHEN p.pct < threshold('rule.pipe_low_pct') THEN 100 - p.pct END AS speedup_pct,
        concat('pipe ', p.pipe, ', % of peak') AS metric,
        p.pct AS value,
        threshold('rule.pipe_high_pct') AS threshold
    FROM busiest AS p
),
every AS (
    SELECT * EXCLUDE (cap) FROM _rule_issue
    UNION ALL BY NAME
    SELECT * FROM rule_launch
    UNION ALL BY NAME
    SELECT * FROM rule_units
)
SELECT
    report_id,
    launch_id,
    rule,
    section,
    title,
    subject,
    type,
    speedup_kind,
    speedup_pct,
    metric,
    value,
    threshold
FROM every
ORDER BY report_id, launch_id, rule, subject;
