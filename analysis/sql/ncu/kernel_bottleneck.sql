-- What bounds each launch, by ordered rules with the thresholds of thresholds.toml, and NVIDIA's own
-- verdict beside it.  Total: every launch has a row, and one whose SOL was not collected is `unknown`.
-- Where the verdict differs from NVIDIA's or is not sure, `explanation` says why.
--
-- report_id: report
-- launch_id: launch
-- bound: compute, memory, latency, launch (too small or too short to fill the GPU; whether launches cost time only a timeline tells), balanced or unknown
-- subclass: compute: tensor, fma, fp64, fp16, alu, xu, lsu, issue or divergence; memory: dram, l2, l1 or shared; latency: dependency, memory, barrier, small_grid, tail or occupancy; launch: small_grid or short
-- cause: uncoalesced, bank_conflict, atomics, local_spill, small_grid, partial_wave, imbalance, divergence, or the resource that limits occupancy; NULL where none shows
-- confidence: high; medium near a threshold or without a subclass; low where the SOL numbers contradict the verdict or passes disagree; NULL for unknown
-- verdict: title of NVIDIA's SOLBottleneck rule, recomputed from the metrics
-- ncu_verdict: title of that rule in the report; NULL where it has none
-- agrees_with_ncu: whether the bound is what NVIDIA's title means; NULL without one
-- explanation: why the verdict is unsure, unknown or another than NVIDIA's; NULL where there is nothing to explain
-- evidence: JSON list of metric, value, threshold and unit
CREATE VIEW kernel_bottleneck AS
WITH ncu AS (
    SELECT report_id, launch_id, any_value(title ORDER BY result_index) AS title
    FROM ncu_rules
    WHERE rule = 'SOLBottleneck' AND title IS NOT NULL
    GROUP BY report_id, launch_id
),
judged AS (
    SELECT
        b.*,
        sol_bottleneck(b.c, b.m, b.waves) AS verdict,
        ncu.title,
        CASE ncu.title
            WHEN 'High Throughput' THEN b.bound IN ('compute', 'memory')
            WHEN 'High Compute Throughput' THEN b.bound = 'compute'
            WHEN 'High Memory Throughput' THEN b.bound = 'memory'
            WHEN 'Balanced Throughput' THEN b.bound = 'balanced'
            WHEN 'Latency Issue' THEN b.bound = 'latency'
            WHEN 'Small Grid' THEN b.bound IN ('launch', 'latency')
        END AS agrees,
        abs(b.sol - threshold('sol.latency_pct')) < threshold('sol.borderline_points')
            OR (b.rule IN ('side', 'balanced') AND b.sol < threshold('sol.high_pct')
                AND abs(abs(b.c - b.m) - threshold('sol.balanced_points')) < threshold('sol.borderline_points')) AS borderline
    FROM _bottleneck_class AS b
    LEFT JOIN ncu USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    bound,
    subclass,
    cause,
    CASE
        WHEN bound = 'unknown' THEN NULL
        WHEN rule = 'rescue' OR passes_disagree THEN 'low'
        WHEN borderline OR rule = 'issue' OR (subclass IS NULL AND bound != 'balanced') THEN 'medium'
        ELSE 'high'
    END AS confidence,
    verdict,
    title AS ncu_verdict,
    agrees AS agrees_with_ncu,
    nullif(concat_ws('; ',
        CASE WHEN bound = 'unknown' THEN concat(
            CASE WHEN c IS NULL THEN 'compute SOL' WHEN m IS NULL THEN 'memory SOL' END,
            ' was not collected: ncu --section SpeedOfLight') END,
        CASE WHEN rule = 'rescue' THEN printf('memory SOL reads %.1f %%, which ncu takes for latency, but %s alone runs at %.1f %% of its peak: part of its work does not count towards memory SOL', m, level, greatest(dram, l2, l1_elapsed)) END,
        CASE WHEN feeds_tensor THEN printf('memory SOL, %.1f %%, is the larger, but it is shared memory feeding a tensor pipe that is %.1f %% busy', m, pipe_pct) END,
        CASE WHEN rule = 'issue' THEN printf('both SOLs are low over the whole run, but while SMs are active the schedulers issue in %.1f %% of cycles', issue_active_pct) END,
        CASE WHEN rule = 'launch' AND NOT agrees THEN 'shorter than a launch costs and with idle SMs: too small to be judged by its SOL' END,
        CASE WHEN borderline THEN printf('compute %.1f %% and memory %.1f %% lie within %.0f points of a threshold', c, m, threshold('sol.borderline_points')) END,
        CASE WHEN passes_disagree THEN printf('the SM clock of its passes differs by %.1f %%', clock_drift_pct) END,
        CASE WHEN subclass IS NULL AND bound IN ('latency', 'compute', 'memory') THEN concat('where was not collected: ncu --section ',
            CASE bound WHEN 'latency' THEN 'WarpStateStats' WHEN 'compute' THEN 'ComputeWorkloadAnalysis' ELSE 'MemoryWorkloadAnalysis' END) END
    ), '') AS explanation,
    to_json(list_filter([
        {metric: 'sm__throughput.avg.pct_of_peak_sustained_elapsed', value: c, threshold: CASE WHEN sol >= threshold('sol.high_pct') THEN threshold('sol.high_pct') ELSE threshold('sol.latency_pct') END, unit: '%'},
        {metric: 'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', value: m, threshold: CASE WHEN sol >= threshold('sol.high_pct') THEN threshold('sol.high_pct') ELSE threshold('sol.latency_pct') END, unit: '%'},
        {metric: 'launch__waves_per_multiprocessor', value: waves, threshold: threshold('sol.full_wave'), unit: 'waves'},
        {metric: 'gpu__time_duration.sum', value: CASE bound WHEN 'launch' THEN duration_ns END, threshold: threshold('launch.short_ns'), unit: 'ns'},
        {metric: concat('pipe ', pipe, ' (kernel_pipes)'), value: CASE bound WHEN 'compute' THEN pipe_pct END, threshold: threshold('compute.pipe_pct'), unit: '%'},
        {metric: 'smsp__issue_active.avg.pct_of_peak_sustained_active', value: CASE subclass WHEN 'issue' THEN issue_active_pct END, threshold: threshold('compute.issue_pct'), unit: '%'},
        {metric: 'smsp__thread_inst_executed_per_inst_executed.ratio', value: CASE WHEN 'divergence' IN (subclass, cause) THEN threads_per_inst END, threshold: threshold('compute.divergent_threads'), unit: 'thread'},
        {metric: memory_metric, value: CASE WHEN bound = 'memory' AND rule != 'rescue' THEN memory_part_pct END, threshold: NULL, unit: '%'},
        {metric: concat(level, ' throughput (kernel_sol)'), value: CASE rule WHEN 'rescue' THEN greatest(dram, l2, l1_elapsed) END, threshold: threshold('rescue.level_pct'), unit: '%'},
        {metric: concat('stall ', stall, ' (kernel_stalls)'), value: CASE bound WHEN 'latency' THEN stall_pct END, threshold: NULL, unit: '%'},
        {metric: 'sm__maximum_warps_per_active_cycle_pct', value: CASE subclass WHEN 'occupancy' THEN occupancy END, threshold: threshold('latency.occupancy_pct'), unit: '%'},
        {metric: 'sm__cycles_active: 1 - avg / max', value: CASE subclass WHEN 'tail' THEN imbalance_pct END, threshold: threshold('latency.imbalance_pct'), unit: '%'},
        {metric: 'smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio', value: CASE cause WHEN 'uncoalesced' THEN load_bytes_per_sector END, threshold: 32 * threshold('memory.bytes_per_sector_share'), unit: 'byte/sector'},
        {metric: 'bank conflicts of wavefronts (kernel_memory)', value: CASE cause WHEN 'bank_conflict' THEN conflict_pct END, threshold: 100 * threshold('memory.conflict_share'), unit: '%'},
        {metric: 'spills of memory requests', value: CASE cause WHEN 'local_spill' THEN spill_pct END, threshold: 100 * threshold('memory.spill_share'), unit: '%'},
        {metric: 'atomics of global requests (kernel_memory)', value: CASE cause WHEN 'atomics' THEN atomic_pct END, threshold: 100 * threshold('memory.atomic_share'), unit: '%'}
    ], lambda row: row.value IS NOT NULL)) AS evidence
FROM judged
ORDER BY report_id, launch_id;
