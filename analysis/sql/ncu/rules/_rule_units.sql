-- NVIDIA's rules on pipes and memory units: HighPipeUtilization, SharedMemoryConflicts,
-- UncoalescedGlobalAccess, UncoalescedSharedAccess.
CREATE VIEW _rule_units AS
WITH conflicts AS (
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
    -- The rule looks at pipes that count active cycles.
    SELECT report_id, launch_id, first(pipe ORDER BY pct DESC, pipe) AS pipe, max(pct) AS pct
    FROM kernel_pipes
    WHERE pipe IN ('tensor', 'fma', 'fp64', 'alu')
    GROUP BY report_id, launch_id
)
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
    'bank conflicts of wavefronts' AS metric,
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
        WHEN p.pct >= threshold('rule.pipe_low_pct') AND p.pct < threshold('rule.pipe_high_pct') THEN 'INF'
        ELSE 'OPT'
    END AS type,
    CASE WHEN p.pct < threshold('rule.pipe_low_pct') THEN 'local' END AS speedup_kind,
    CASE WHEN p.pct < threshold('rule.pipe_low_pct') THEN 100 - p.pct END AS speedup_pct,
    concat('pipe ', p.pipe, ', % of peak') AS metric,
    p.pct AS value,
    threshold('rule.pipe_high_pct') AS threshold
FROM busiest AS p;
