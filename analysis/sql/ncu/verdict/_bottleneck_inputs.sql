-- Inputs of the classifier, one row per launch. Any input may be NULL.
CREATE VIEW _bottleneck_inputs AS
WITH pipes AS (
    SELECT
        report_id,
        launch_id,
        arg_min(pipe, rank) AS pipe,
        arg_min(pct, rank) AS pct,
        max(pct) FILTER (pipe = 'tensor') AS tensor_pct,
        max(pct) FILTER (pipe = 'fp64') AS fp64_pct
    FROM kernel_pipes
    GROUP BY report_id, launch_id
),
constituents AS (
    SELECT report_id, launch_id, arg_min(part, rank) AS part, arg_min(metric, rank) AS metric, max(pct) AS pct
    FROM kernel_sol_breakdown
    WHERE side = 'memory' AND part != 'interconnect'
    GROUP BY report_id, launch_id
),
rates AS (
    SELECT
        f.report_id,
        f.launch_id,
        max(pct_of_peak(f.flop_per_s, f.peak_flop_per_cycle * coalesce(w.sm_clock_hz, w.gpc_clock_hz)))
            AS flops_pct,
        max(f.flop) FILTER (f.precision = 'fp16') AS fp16_flop,
        max(f.flop) FILTER (f.precision != 'fp16') AS other_flop
    FROM kernel_flops AS f
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    WHERE f.flop > 0
    GROUP BY f.report_id, f.launch_id
),
stalls AS (
    SELECT
        report_id,
        launch_id,
        arg_min(reason, rank) AS reason,
        arg_min(family, rank) AS family,
        arg_min(coalesce(pct, samples_pct), rank) AS pct,
        max(coalesce(pct, samples_pct)) FILTER (WHERE reason = 'lg_throttle') AS lg_throttle_pct,
        max(coalesce(pct, samples_pct)) FILTER (WHERE reason = 'drain') AS drain_pct
    FROM kernel_stalls
    WHERE is_stall
    GROUP BY report_id, launch_id
),
-- The vendor's DRAM bandwidth.
nominal AS (
    SELECT report_id, any_value(bytes_per_s) AS bytes_per_s FROM gpu_peaks GROUP BY report_id
),
-- Achieved DRAM bandwidth, also as % of the vendor's.
dram AS (
    SELECT t.report_id, t.launch_id, t.bytes_per_s, pct_of_peak(t.bytes_per_s, v.bytes_per_s) AS pct
    FROM _kernel_traffic AS t
    LEFT JOIN nominal AS v USING (report_id)
    WHERE t.level = 'dram'
),
-- Other utilizations that a list of metrics may contain, where SOLs are missing: the largest.  Occupancy and
-- active cycles of an SM or a cache are no utilization of a unit.
busy_units AS (
    SELECT report_id, launch_id, arg_max({pct: pct, side: side, part: part, name: metric}, pct) AS busy
    FROM (
        SELECT
            report_id,
            launch_id,
            metric,
            possible_pct(value) AS pct,
            CASE
                WHEN regexp_matches(metric, '^(dramc?|fbpa?)__') THEN 'dram'
                WHEN regexp_matches(metric, '^(lts|ltc|lrc)__') THEN 'l2'
                WHEN regexp_matches(metric, '^l1tex__') THEN 'l1'
                WHEN regexp_matches(metric, '^sms?p?__(issue_active|inst_issued|inst_executed)\.')
                    THEN 'issue'
                ELSE nullif(regexp_extract(
                    metric, '^sms?p?__(?:inst_executed_)?(?:pipe_)?(tensor|fma|fp64|fp16|alu|xu|lsu)', 1
                ), '')
            END AS part,
            if(part IN ('dram', 'l2', 'l1') OR contains(metric, 'memory'), 'memory', 'compute') AS side
        FROM ncu_metrics
        SEMI JOIN (FROM kernel_sol WHERE max_sol_pct IS NULL) USING (report_id, launch_id)
        WHERE regexp_full_match(
                metric,
                '(dramc?|fbpa?|lts|ltc|lrc|l1tex|sm|smsp|gpu)__\w+\.(avg|sum)\.pct_of_peak_sustained_\w+'
            )
            AND NOT regexp_matches(
                metric, '^(sm|smsp|l1tex|lts|gpu)__(cycles|warps|ctas|maximum|threads)_|_rate|breakdown'
            )
            AND value IS NOT NULL
    )
    WHERE pct IS NOT NULL AND (part IS NOT NULL OR contains(metric, 'throughput'))
    GROUP BY report_id, launch_id
),
printed AS (
    SELECT
        report_id,
        launch_id,
        max(printed) FILTER (name = 'compute_sol_pct') AS compute,
        max(printed) FILTER (name = 'memory_sol_pct') AS memory
    FROM _not_finite
    GROUP BY report_id, launch_id
),
-- Throughput of warp matrix instructions relative to warpgroup ones, on GPUs that have both.
warp_rates AS (
    SELECT cc, 100 * min(mma.flop_per_cycle / wgmma.flop_per_cycle) AS pct
    FROM gpu_tensor_rates AS mma
    JOIN gpu_tensor_rates AS wgmma USING (cc, dtype)
    WHERE mma.instruction = 'mma' AND wgmma.instruction = 'wgmma'
    GROUP BY cc
)
SELECT
    s.report_id,
    s.launch_id,
    s.duration_ns,
    s.compute_sol_pct,
    s.memory_sol_pct,
    s.max_sol_pct,
    s.of_units,
    s.one_pass,
    s.max_sol_pct >= threshold('sol.latency_pct') - threshold('sol.near_roof_points') AS near_roof,
    s.dram_sol_pct,
    s.l2_sol_pct,
    coalesce(s.l1_elapsed_sol_pct, s.l1_sol_pct) AS l1_sol_pct,
    s.l1_elapsed_sol_pct,
    -- Relative to active cycles, L1 looks busy in a mostly idle kernel, so only elapsed cycles count here.
    greatest(s.dram_sol_pct, s.l2_sol_pct, s.l1_elapsed_sol_pct) AS busiest_level_pct,
    s.shared_sol_pct,
    s.passes_disagree,
    s.clock_drift_pct,
    s.waves,
    -- Share of the run time that a wave of the missing blocks would use, if all blocks take equally long.
    CASE WHEN s.waves >= 1 THEN 100 * (ceil(s.waves) - s.waves) / ceil(s.waves) END AS wave_loss_pct,
    w.grid_size,
    w.sm_count,
    w.sm_active_cycles / nullif(coalesce(w.sm_elapsed_cycles, w.gpc_cycles), 0) AS sm_active_share,
    sm_imbalance_pct(w.sm_active_cycles, w.sm_active_cycles_max) AS imbalance_pct,
    coalesce(w.threads_per_inst, w.thread_inst_executed / nullif(w.inst_executed, 0)) AS threads_per_inst,
    coalesce(w.block_size, l.block_x * l.block_y * l.block_z) AS block_size,
    threads_per_warp(coalesce(w.block_size, l.block_x * l.block_y * l.block_z)) AS threads_per_warp,
    100 * (1 - threads_per_warp / 32) AS idle_lanes_pct,
    w.issue_active_pct,
    w.issue_elapsed_pct,
    w.scheduler_warps_eligible AS eligible_warps,
    o.theoretical_occupancy_pct AS occupancy_pct,
    o.limiters,
    -- Packed FP16 instructions run on the FMA pipe of GPUs without a separate pipe for them.
    CASE
        WHEN p.pipe = 'fma' AND r.fp16_flop > coalesce(r.other_flop, 0) THEN 'fp16'
        ELSE p.pipe
    END AS pipe,
    p.pct AS pipe_pct,
    p.fp64_pct,
    -- Double literals or calls of double functions in a kernel of floats.
    p.fp64_pct >= threshold('compute.fp64_for_floats_pct')
        AND has_float_arguments(coalesce(l.kernel_demangled, l.kernel_name)) AS fp64_for_floats,
    r.flops_pct,
    CASE
        WHEN w.gmma_pipe_pct = 0 AND p.tensor_pct >= threshold('rule.pipe_low_pct') THEN a.pct
    END AS mma_sync_pct,
    p.tensor_pct,
    w.gmma_pipe_pct,
    k.part AS memory_part,
    k.metric AS memory_metric,
    k.pct AS memory_part_pct,
    t.reason AS stall,
    t.family AS stall_family,
    t.pct AS stall_pct,
    -- Atomics fill the queue to L1; atomics without a result delay the warp at its end.
    coalesce(t.lg_throttle_pct, 0) + coalesce(t.drain_pct, 0) AS atomic_stall_pct,
    used_bytes_per_sector(
        y.load_bytes_per_sector, w.global_load_sectors, y.store_bytes_per_sector, w.global_store_sectors
    ) AS bytes_per_sector,
    -- A CSV page may contain NVIDIA's finding without the counters behind it.
    coalesce(is_uncoalesced(bytes_per_sector, y.global_excess_pct), n.found) AS uncoalesced,
    greatest(y.shared_conflict_pct, y.shared_excess_pct) AS conflict_pct,
    y.atomic_pct,
    100 * y.spill_requests / nullif(
        y.local_requests + w.global_load_requests + w.global_store_requests, 0
    ) AS spilled_pct,
    -- TMA requests count neither as loads nor as stores, so the share of requests alone is not sufficient.
    spilled_pct >= 100 * threshold('memory.spill_share')
        AND coalesce(
            y.spill_requests >= threshold('memory.spill_inst_share') * w.inst_executed, true
        ) AS spills,
    y.local_pct,
    -- Spills, if they are counted, and arrays that are not in registers.
    y.local_pct >= 100 * threshold('memory.local_share')
        AND coalesce(
            y.local_requests >= threshold('memory.spill_inst_share') * w.inst_executed, true
        ) AS uses_local,
    -- GPUs whose memory is the host's: their SOL contains no DRAM.
    s.dram_sol_pct IS NULL AND NOT coalesce(g.dram_counters, true) AS dram_unknown,
    CASE
        WHEN dram_unknown
            THEN coalesce(w.l2_bytes_per_s, w.l2_bytes / nullif(s.duration_ns / 1e9, 0))
    END AS l2_bytes_per_s,
    CASE WHEN dram_unknown THEN pct_of_peak(l2_bytes_per_s, v.bytes_per_s) END AS l2_nominal_pct,
    -- If a SOL is unknown: why, and the unit with the largest known throughput.
    CASE WHEN s.max_sol_pct IS NULL THEN concat_ws('; ',
        CASE WHEN s.compute_sol_pct IS NULL THEN why_no_sol('compute', w.compute_sol_pct, f.compute) END,
        CASE WHEN s.memory_sol_pct IS NULL THEN why_no_sol('memory', w.memory_sol_pct, f.memory) END
    ) END AS wrong_sols,
    list_filter([
        if(coalesce(s.compute_sol_pct, w.compute_sol_pct) IS NULL AND f.compute IS NULL, 'compute', NULL),
        if(coalesce(s.memory_sol_pct, w.memory_sol_pct) IS NULL AND f.memory IS NULL, 'memory', NULL)
    ], lambda side: side IS NOT NULL) AS sols_to_collect,
    CASE WHEN s.max_sol_pct IS NULL THEN list_reverse_sort(list_filter([
        {pct: s.compute_sol_pct, side: 'compute', part: NULL, name: 'compute SOL'},
        {pct: s.memory_sol_pct, side: 'memory', part: NULL, name: 'memory SOL'},
        {pct: s.dram_sol_pct, side: 'memory', part: 'dram', name: 'DRAM throughput'},
        {pct: possible_pct(w.dram_read_pct), side: 'memory', part: 'dram', name: 'DRAM read throughput'},
        {pct: possible_pct(w.dram_write_pct), side: 'memory', part: 'dram', name: 'DRAM write throughput'},
        {pct: s.l2_sol_pct, side: 'memory', part: 'l2', name: 'L2 throughput'},
        {pct: s.l1_elapsed_sol_pct, side: 'memory', part: 'l1', name: 'L1 throughput'},
        {pct: possible_pct(p.pct), side: 'compute', part: p.pipe, name: printf('%s pipe use', p.pipe)},
        {pct: possible_pct(w.issue_elapsed_pct), side: 'compute', part: 'issue', name: 'issue slot use'},
        {
            pct: possible_pct(d.pct), side: 'memory', part: 'dram',
            name: 'DRAM traffic relative to the vendor''s bandwidth'
        },
        -- Only if it is busy: a unit with a name of its own says more.
        if(z.busy.pct >= threshold('sol.high_pct'), z.busy, NULL)
    ], lambda unit: unit.pct IS NOT NULL))[1] END AS unit,
    CASE WHEN s.max_sol_pct IS NULL THEN d.bytes_per_s END AS dram_bytes_per_s,
    CASE WHEN s.max_sol_pct IS NULL THEN possible_pct(d.pct) END AS dram_nominal_pct
FROM kernel_sol AS s
JOIN ncu_launches AS l USING (report_id, launch_id)
LEFT JOIN warp_rates AS a USING (cc)
LEFT JOIN gpu_architectures AS g USING (cc)
LEFT JOIN nominal AS v USING (report_id)
LEFT JOIN kernel_metrics AS w USING (report_id, launch_id)
LEFT JOIN kernel_occupancy AS o USING (report_id, launch_id)
LEFT JOIN kernel_memory AS y USING (report_id, launch_id)
LEFT JOIN pipes AS p USING (report_id, launch_id)
LEFT JOIN rates AS r USING (report_id, launch_id)
LEFT JOIN constituents AS k USING (report_id, launch_id)
LEFT JOIN stalls AS t USING (report_id, launch_id)
LEFT JOIN dram AS d USING (report_id, launch_id)
LEFT JOIN busy_units AS z USING (report_id, launch_id)
LEFT JOIN printed AS f USING (report_id, launch_id)
LEFT JOIN (
    SELECT DISTINCT report_id, launch_id, true AS found FROM ncu_rules
    WHERE rule = 'UncoalescedGlobalAccess' AND type = 'OPT'
) AS n USING (report_id, launch_id);
