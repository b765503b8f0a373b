-- What bounds each launch, by ordered rules with the thresholds of thresholds.toml, next to
-- NVIDIA's own verdict.  Every launch has a row; one whose SOL was not collected is `unknown`.  If
-- the verdict differs from NVIDIA's or is uncertain, `explanation` says why.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- bound VARCHAR: compute, memory, latency, launch (too small or too short to fill the GPU; only a timeline
--   tells whether launching costs time), balanced or unknown
-- subclass VARCHAR: limiter; compute: tensor, fma, fp64, fp16, alu, xu, lsu, issue or divergence; memory:
--   dram, l2, l1 or shared; latency: dependency, memory, barrier, small_grid, tail or occupancy;
--   launch: small_grid or short
-- cause VARCHAR: uncoalesced, bank_conflict, atomics, local_spill, small_grid, partial_wave, imbalance,
--   divergence, or the resource that limits occupancy; NULL if none is found
-- confidence VARCHAR: high; medium near a threshold or without a limiter; low if the SOL numbers contradict
--   the verdict or passes disagree; NULL for unknown
-- verdict VARCHAR: title of NVIDIA's SOLBottleneck rule, recomputed from the metrics
-- ncu_verdict VARCHAR: title of that rule in the report; NULL if there is none
-- agrees_with_ncu BOOLEAN: whether the bound matches NVIDIA's title; NULL if there is none
-- explanation VARCHAR: why the verdict is uncertain, unknown or different from NVIDIA's; NULL if there is
--   nothing to explain
-- evidence JSON: JSON list of metric, value, threshold and unit
CREATE VIEW kernel_bottleneck AS
SELECT
    report_id,
    launch_id,
    bound,
    subclass,
    cause,
    confidence,
    verdict,
    title AS ncu_verdict,
    agrees AS agrees_with_ncu,
    explanation,
    to_json(list_filter([
        evidence(
            sol_name('sm__throughput.avg.pct_of_peak_sustained_elapsed', of_units),
            compute_sol_pct,
            sol_threshold,
            '%'
        ),
        evidence(
            sol_name('gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', of_units),
            memory_sol_pct,
            sol_threshold,
            '%'
        ),
        evidence('launch__waves_per_multiprocessor', waves, threshold('sol.full_wave'), 'waves'),
        evidence(
            'gpu__time_duration.sum',
            CASE bound WHEN 'launch' THEN duration_ns END,
            threshold('launch.short_ns'),
            'ns'
        ),
        evidence(
            concat('pipe ', pipe, ' (kernel_pipes)'),
            CASE bound WHEN 'compute' THEN pipe_pct END,
            threshold('compute.pipe_pct'),
            '%'
        ),
        evidence(
            'smsp__issue_active.avg.pct_of_peak_sustained_active',
            CASE subclass WHEN 'issue' THEN issue_active_pct END,
            threshold('compute.issue_pct'),
            '%'
        ),
        evidence(
            'smsp__thread_inst_executed_per_inst_executed.ratio',
            CASE WHEN 'divergence' IN (subclass, cause) THEN threads_per_inst END,
            threshold('compute.divergent_threads'),
            'thread'
        ),
        evidence(
            memory_metric,
            CASE WHEN bound = 'memory' AND rule != 'busy_level' THEN memory_part_pct END,
            NULL,
            '%'
        ),
        evidence(
            concat(level, ' throughput (kernel_sol)'),
            CASE rule WHEN 'busy_level' THEN busiest_level_pct END,
            threshold('rescue.level_pct'),
            '%'
        ),
        evidence(
            concat('stall ', stall, ' (kernel_stalls)'),
            CASE bound WHEN 'latency' THEN stall_pct END,
            NULL,
            '%'
        ),
        evidence(
            'sm__maximum_warps_per_active_cycle_pct',
            CASE subclass WHEN 'occupancy' THEN occupancy_pct END,
            threshold('latency.occupancy_pct'),
            '%'
        ),
        evidence(
            'sm__cycles_active: 1 - avg / max',
            CASE subclass WHEN 'tail' THEN imbalance_pct END,
            threshold('latency.imbalance_pct'),
            '%'
        ),
        evidence(
            'bytes used of each sector (kernel_memory)',
            CASE cause WHEN 'uncoalesced' THEN bytes_per_sector END,
            32 * threshold('memory.bytes_per_sector_share'),
            'byte/sector'
        ),
        evidence(
            'bank conflicts of wavefronts (kernel_memory)',
            CASE cause WHEN 'bank_conflict' THEN conflict_pct END,
            100 * threshold('memory.conflict_share'),
            '%'
        ),
        evidence(
            'spills of memory requests',
            CASE cause WHEN 'local_spill' THEN spilled_pct END,
            100 * threshold('memory.spill_share'),
            '%'
        ),
        evidence(
            'atomics of global requests (kernel_memory)',
            CASE cause WHEN 'atomics' THEN atomic_pct END,
            100 * threshold('memory.atomic_share'),
            '%'
        )
    ], lambda row: row.value IS NOT NULL)) AS evidence
FROM _bottleneck_judged
ORDER BY report_id, launch_id;
