-- What bounds each launch, from ordered rules with the thresholds in thresholds.toml, together with NVIDIA's
-- verdict. Every launch has a row. A launch whose SOL is unknown is classified as `unknown`, unless one
-- hardware unit runs at 80 % of its peak or more; the bound is then this unit. If the verdict is uncertain,
-- unknown or different from NVIDIA's, `explanation` gives the reason.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- bound VARCHAR: what bounds the launch: compute, memory, latency, launch (too small or too short to fill the
--   GPU; only a timeline shows whether launches cost time), balanced (compute and memory) or unknown
-- subclass VARCHAR: limiter: for compute, tensor, fma, fp64, fp16, alu, xu, lsu, issue or divergence; for
--   memory, dram, l2, l1 or shared; for latency, dependency, memory, barrier, small_grid, tail, occupancy,
--   idle_lanes (most lanes of a warp have no thread) or dram_unknown (memory latency or DRAM, on a GPU
--   without DRAM counters); for launch, small_grid or short
-- cause VARCHAR: cause of the bottleneck: uncoalesced, bank_conflict, atomics, local_spill, local_memory
--   (arrays in local memory, or spills that were not counted), narrow_blocks (blocks whose size is not a
--   multiple of 32), fp64_for_floats (FP64 instructions in a kernel of floats), small_grid, partial_wave,
--   imbalance, divergence, or the resource that limits occupancy; NULL if no cause was found
-- confidence VARCHAR: confidence of the verdict: high; medium if a value is near a threshold or no limiter
--   was found; low if the SOL values contradict the verdict or the passes disagree; NULL for unknown
-- verdict VARCHAR: title that NVIDIA's SOLBottleneck rule would give, recomputed from the metrics
-- ncu_verdict VARCHAR: title of NVIDIA's SOLBottleneck rule in the report; NULL if the report does not
--   contain the rule
-- agrees_with_ncu BOOLEAN: whether the bound matches NVIDIA's title; NULL if ncu_verdict is NULL
-- explanation VARCHAR: why the verdict is uncertain, unknown or different from NVIDIA's; NULL otherwise
-- collect VARCHAR: options of ncu that collect the limiter or the cause, if they were not collected; NULL
--   otherwise
-- notable VARCHAR: what the counters show about narrow blocks, local memory, FP64 in a kernel of floats and
--   low theoretical occupancy, whether or not it is the cause; NULL if nothing
-- evidence JSON: JSON list of the metrics that the verdict is based on, each with its value, threshold and
--   unit
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
        sol_bottleneck(b.compute_sol_pct, b.memory_sol_pct, b.waves) AS verdict,
        ncu.title,
        CASE ncu.title
            WHEN 'High Throughput' THEN b.bound IN ('compute', 'memory')
            WHEN 'High Compute Throughput' THEN b.bound = 'compute'
            WHEN 'High Memory Throughput' THEN b.bound = 'memory'
            WHEN 'Balanced Throughput' THEN b.bound = 'balanced'
            WHEN 'Latency Issue' THEN b.bound = 'latency'
            WHEN 'Small Grid' THEN b.bound IN ('launch', 'latency')
        END AS agrees,
        abs(b.max_sol_pct - threshold('sol.latency_pct')) < threshold('sol.borderline_points')
            OR (
                b.rule IN ('larger_sol', 'balanced')
                AND b.max_sol_pct < threshold('sol.high_pct')
                AND abs(abs(b.compute_sol_pct - b.memory_sol_pct) - threshold('sol.balanced_points'))
                    < threshold('sol.borderline_points')
            ) AS borderline,
        CASE
            WHEN subclass IS NULL THEN bound IN ('latency', 'compute', 'memory')
            WHEN bound = 'latency' AND subclass IN ('occupancy', 'idle_lanes', 'dram_unknown')
                THEN eligible_warps IS NULL AND stalled_on IS NULL
            ELSE false
        END AS no_limiter
    FROM _bottleneck_class AS b
    LEFT JOIN ncu USING (report_id, launch_id)
),
-- The classes next to NVIDIA's own verdict: their confidence, and why they are uncertain or differ.
bottleneck_judged AS (
    SELECT
        *,
        CASE
            WHEN bound = 'unknown' THEN NULL
            WHEN rule = 'busy_level' OR passes_disagree OR (one_pass AND bound != 'memory') THEN 'low'
            WHEN dram_unknown AND bound IN ('latency', 'balanced') THEN 'low'
            WHEN borderline OR of_units OR rule IN ('issue', 'near_roof', 'one_unit') THEN 'medium'
            WHEN no_limiter THEN 'medium'
            WHEN rule = 'imbalance' AND imbalance_pct IS NULL THEN 'medium'
            ELSE 'high'
        END AS confidence,
        CASE
            WHEN max_sol_pct >= threshold('sol.high_pct') OR rule = 'one_unit' THEN threshold('sol.high_pct')
            ELSE threshold('sol.latency_pct')
        END AS sol_threshold,
        nullif(concat_ws('; ',
            nullif(wrong_sols, ''),
            CASE
                WHEN max_sol_pct IS NULL THEN printf(
                    '%s SOL %s not collected; use ncu --section SpeedOfLight',
                    nullif(array_to_string(sols_to_collect, ' and '), ''),
                    if(len(sols_to_collect) > 1, 'were', 'was')
                )
            END,
            if(unit IS NOT NULL, printf('%s is %.1f %%', unit.name, unit.pct), NULL),
            CASE
                WHEN dram_bytes_per_s IS NOT NULL AND unit.part IS DISTINCT FROM 'dram' THEN concat(
                    printf('DRAM transfers %.0f GB/s', dram_bytes_per_s / 1e9),
                    printf(', %.0f %% of the vendor''s bandwidth', dram_nominal_pct)
                )
            END,
            if(max_sol_pct > 100, printf('SOL is %.1f %%, above 100 %%: passes disagree', max_sol_pct), NULL),
            CASE WHEN rule = 'imbalance' AND imbalance_pct IS NULL
                THEN printf('SM activity was not collected; a grid of %.2f waves leaves SMs idle', waves) END,
            CASE
                WHEN rule = 'busy_level' THEN printf(
                    'memory SOL is %.1f %%, which ncu classifies as latency, but %s alone runs at %.1f %% of '
                    || 'peak: memory SOL does not count part of the work of this level',
                    memory_sol_pct, level, busiest_level_pct
                )
            END,
            CASE
                WHEN feeds_tensor THEN printf(
                    'memory SOL (%.1f %%) is larger, but comes from shared memory that feeds a tensor pipe '
                    || '(%.1f %% busy)',
                    memory_sol_pct, pipe_pct
                )
            END,
            CASE
                WHEN rule = 'issue' THEN printf(
                    'both SOLs are low over the whole kernel, but the schedulers issue in %.1f %% of the '
                    || 'cycles in which SMs are active',
                    issue_active_pct
                )
            END,
            CASE
                WHEN rule = 'near_roof' THEN printf(
                    'the grid of %.2f waves leaves few SMs without work, and %s SOL (%.1f %%) is within '
                    || '%.0f points of %.0f %%: the grid is a bit small, and the kernel is almost %s-bound',
                    waves,
                    bound,
                    max_sol_pct,
                    threshold('sol.near_roof_points'),
                    threshold('sol.latency_pct'),
                    bound
                )
            END,
            CASE
                WHEN subclass = 'tensor' AND mma_sync_pct IS NOT NULL THEN printf(
                    'the kernel uses warp matrix instructions (mma.sync), which reach %.0f %% of the tensor '
                    || 'peak of this GPU; warpgroup instructions (wgmma) reach 100 %%',
                    mma_sync_pct
                )
                WHEN subclass IN ('fma', 'fp64', 'fp16')
                    AND flops_pct < threshold('compute.flops_share') * pipe_pct
                    THEN printf(
                        'the %s pipe is %.1f %% busy at %.1f %% of the FLOP peak: the peak counts fused '
                        || 'multiply-adds, and adds, multiplies and other instructions do half as '
                        || 'many FLOPs or fewer',
                        subclass, pipe_pct, flops_pct
                    )
            END,
            CASE
                WHEN rule = 'launch' AND NOT agrees
                    THEN 'the kernel is shorter than a launch and leaves SMs idle: too small to judge by SOL'
            END,
            CASE
                WHEN borderline THEN printf(
                    'compute SOL (%.1f %%) or memory SOL (%.1f %%) is within %.0f points of a threshold',
                    compute_sol_pct, memory_sol_pct, threshold('sol.borderline_points')
                )
            END,
            CASE
                WHEN one_pass
                    THEN 'SOL is the maximum over the metrics of one pass; the true SOL may be higher '
                        || '(ncu --set basic)'
                WHEN of_units
                    THEN 'SOL is the maximum of its main constituents; below 50 %, it may be up to 5 '
                        || 'points too low'
            END,
            CASE
                WHEN dram_unknown THEN concat(
                    'ncu has no DRAM counters on this GPU, so SOL does not include DRAM, which may be the '
                    || 'limit',
                    printf('; L2 transfers %.0f GB/s', l2_bytes_per_s / 1e9),
                    printf(', %.0f %% of the vendor''s DRAM bandwidth', l2_nominal_pct),
                    if(l2_bytes_per_s IS NULL, '; use ncu --metrics lts__t_bytes.sum.per_second', '')
                )
            END,
            if(passes_disagree, printf('SM clocks differ by %.1f %% between passes', clock_drift_pct), NULL),
            CASE
                WHEN no_limiter AND subclass IS NULL
                    THEN concat('the limiter was not collected; use ncu ', sections_for(bound))
                WHEN no_limiter
                    THEN concat('stall reasons were not collected; use ncu ', sections_for(bound))
            END
        ), '') AS explanation
    FROM judged
)
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
    CASE
        WHEN no_limiter THEN sections_for(bound)
        WHEN subclass = 'dram_unknown' AND l2_bytes_per_s IS NULL THEN '--metrics lts__t_bytes.sum.per_second'
        WHEN bound = 'memory' AND cause IS NULL AND uncoalesced IS NULL
            THEN '--section MemoryWorkloadAnalysis_Tables --section SourceCounters'
    END AS collect,
    nullif(concat_ws(', ',
        CASE
            WHEN is_narrow(block_size)
                THEN printf('%s leave %s idle', blocks_text(block_size), idle_lanes_text(block_size))
        END,
        CASE
            WHEN spills THEN printf(
                'spills cause %.0f %% of the global and local memory requests', spilled_pct
            )
            WHEN uses_local THEN printf(
                '%.0f %% of the sectors of loads and stores are in local memory (arrays or spills)', local_pct
            )
        END,
        CASE
            WHEN fp64_for_floats THEN printf(
                'the FP64 pipe is %.0f %% busy although the arguments are float', fp64_pct
            )
        END,
        CASE
            WHEN bound = 'latency' AND occupancy_pct < threshold('rule.occupancy_pct') AND len(limiters) > 0
                THEN printf(
                    'theoretical occupancy is %.1f %% (limited by %s)',
                    occupancy_pct,
                    replace(array_to_string(limiters, ' and '), 'shared_mem', 'shared memory')
                )
        END
    ), '') AS notable,
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
        evidence(
            unit.name,
            CASE WHEN rule = 'one_unit' AND unit.part IS NOT NULL THEN unit.pct END,
            threshold('sol.high_pct'),
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
            'bytes used per sector (kernel_memory)',
            CASE cause WHEN 'uncoalesced' THEN bytes_per_sector END,
            32 * threshold('memory.bytes_per_sector_share'),
            'byte/sector'
        ),
        evidence(
            'wavefronts from bank conflicts (kernel_memory)',
            CASE cause WHEN 'bank_conflict' THEN conflict_pct END,
            100 * threshold('memory.conflict_share'),
            '%'
        ),
        evidence(
            'memory requests from spills',
            CASE cause WHEN 'local_spill' THEN spilled_pct END,
            100 * threshold('memory.spill_share'),
            '%'
        ),
        evidence(
            'local memory share of loads and stores (kernel_memory)',
            CASE cause WHEN 'local_memory' THEN local_pct END,
            100 * threshold('memory.local_share'),
            '%'
        ),
        evidence(
            'launch__block_size: lanes without a thread',
            CASE cause WHEN 'narrow_blocks' THEN idle_lanes_pct END,
            100 * threshold('compute.idle_lane_share'),
            '%'
        ),
        evidence(
            'pipe fp64 (kernel_pipes), with float arguments',
            CASE cause WHEN 'fp64_for_floats' THEN fp64_pct END,
            threshold('compute.fp64_for_floats_pct'),
            '%'
        ),
        evidence(
            'global requests from atomics (kernel_memory)',
            CASE cause WHEN 'atomics' THEN atomic_pct END,
            100 * threshold('memory.atomic_share'),
            '%'
        )
    ], lambda row: row.value IS NOT NULL)) AS evidence
FROM bottleneck_judged
ORDER BY report_id, launch_id;
