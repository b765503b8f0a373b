-- Lower bound on a launch's duration after each optimization: the time that the remaining work would take if
-- its hardware unit ran at peak throughput, as a fraction of the current duration. No technique can make the
-- launch shorter than the longest floor of the work that the technique keeps (`keeps` in knowledge.toml). The
-- floor of a hardware unit is its SOL at the launch's clocks. The floor of FLOPs uses the measured peak or
-- the vendor's dense peak, whichever is higher. If work is declared, only the declared work counts. If tensor
-- FLOPs were not counted, the tensor pipe's utilization at the maximum clock is used instead.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- floor VARCHAR: remaining work: work (all work), instructions, memory (all traffic), dram, half_dram (half
--   of the DRAM traffic), half_memory (half of the traffic that limits the user's own kernel), l2 (including
--   fills from DRAM), returns (data returned from L2 to the SMs), l1, unconflicted (L1 without bank
--   conflicts), flops (by type), tensor (all FLOPs on tensor cores in FP16 or BF16), narrower (FLOPs in the
--   next narrower type), bytes (each byte moves once), chain (for consecutive elementwise kernels: the input
--   of the first kernel and the output of the last kernel), issue (instructions without divergence), balanced
--   (work spread evenly over all SMs), whole_waves (blocks of equal duration without a partial wave), nothing
--   (the launch is eliminated)
-- pct DOUBLE: time that the remaining work takes at peak throughput, % of the launch's duration
CREATE VIEW kernel_floors AS
WITH narrower (precision, dtypes) AS (
    VALUES
        ('fp64', ['fp32', 'tf32']),
        ('tensor_fp64', ['fp32', 'tf32']),
        ('fp32', ['fp16', 'bf16', 'fp16_acc16']),
        ('fp16', ['fp8', 'fp8_acc16']),
        ('tensor_tf32', ['fp16', 'bf16', 'fp16_acc16']),
        ('tensor_fp16', ['fp8', 'fp8_acc16']),
        ('tensor_bf16', ['fp8', 'fp8_acc16']),
        ('tensor_fp8', ['fp4'])
),
peaks AS (
    SELECT
        report_id,
        map_from_entries(list({key: dtype, value: flop_per_s} ORDER BY dtype)) AS of_type,
        max(flop_per_s) FILTER (dtype IN ('fp16', 'bf16', 'fp16_acc16')) AS tensor
    FROM gpu_peaks
    GROUP BY report_id
),
rates AS (
    SELECT
        r.report_id,
        r.launch_id,
        -- Pipes work concurrently: the longest one counts, not the sum.
        max(least(r.pct_of_peak, r.pct_of_peak_nominal) * least(coalesce(d.flop / r.flop, 1), 1)) AS flops,
        max(pct_of_peak(r.flop / nullif(l.duration_ns / 1e9, 0), p.tensor)) AS tensor,
        max(pct_of_peak(
            r.flop / nullif(l.duration_ns / 1e9, 0),
            list_max(list_transform(n.dtypes, lambda dtype: p.of_type[dtype]))
        )) AS narrower
    FROM kernel_roofline AS r
    JOIN ncu_launches AS l USING (report_id, launch_id)
    LEFT JOIN peaks AS p USING (report_id)
    LEFT JOIN narrower AS n USING (precision)
    LEFT JOIN _declared_work AS d USING (report_id, launch_id)
    WHERE r.level = 'dram' AND r.precision != 'none'
    GROUP BY r.report_id, r.launch_id
),
tensor_pipe AS (
    SELECT
        i.report_id,
        i.launch_id,
        of_tensor_peak(i.tensor_pct, i.mma_sync_pct)
            * least(w.gpc_clock_hz / (1000 * w.clock_rate_khz), 1) AS pct
    FROM _bottleneck_inputs AS i
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    JOIN _tensor_uncounted USING (report_id, launch_id)
),
whole AS (
    SELECT DISTINCT report_id
    FROM kernel_sol
    GROUP BY report_id, kernel_demangled, grid, block
    HAVING count(*) > 1
),
placed AS (
    SELECT
        l.report_id,
        l.launch_id,
        list_contains(f.features, 'elementwise') AS elementwise,
        coalesce(lag(elementwise) OVER stream, false) AS follows,
        coalesce(lead(elementwise) OVER stream, false) AS leads
    FROM ncu_launches AS l
    JOIN kernel_features AS f USING (report_id, launch_id)
    WINDOW stream AS (PARTITION BY l.report_id, l.stream, l.nvtx_path ORDER BY l.launch_id)
),
-- Consecutive elementwise kernels on a stream within the same NVTX ranges: if fused, only the reads of the
-- first and the writes of the last are needed. Without a neighbor of that kind, or without known bytes, there
-- is no row. A report in which no configuration occurs twice may have been filtered (one launch each), so
-- that the neighbors are unknown.
fusion_chains AS (
    SELECT report_id, launch_id, kept_pct AS pct
    FROM (
        SELECT
            p.*,
            CASE
                -- Without the bytes of both ends, the fusion of the middle does not bound the chain.
                WHEN p.follows AND p.leads THEN 0 * b.loaded_pct
                WHEN p.follows THEN b.stored_pct
                ELSE b.loaded_pct
            END AS kept_pct
        FROM placed AS p
        JOIN whole USING (report_id)
        LEFT JOIN _necessary_bytes AS b USING (report_id, launch_id)
        WHERE p.elementwise AND (p.follows OR p.leads)
    )
    WHERE kept_pct IS NOT NULL
),
floors AS (
    SELECT
        i.report_id,
        i.launch_id,
        unnest([
            -- A SOL without DRAM does not say how long the same traffic takes.
            {floor: 'work', pct: if(i.dram_unknown, NULL, i.max_sol_pct)},
            {floor: 'instructions', pct: i.compute_sol_pct},
            {floor: 'memory', pct: if(i.dram_unknown, NULL, i.memory_sol_pct)},
            {floor: 'dram', pct: i.dram_sol_pct},
            {floor: 'half_dram', pct: i.dram_sol_pct / 2},
            {
                floor: 'half_memory',
                pct: CASE
                    WHEN v.bound = 'memory' AND NOT k.closed AND NOT i.dram_unknown
                        THEN i.memory_sol_pct / 2
                END
            },
            {floor: 'l2', pct: i.l2_sol_pct},
            {
                floor: 'returns',
                pct: pct_of_peak(w.l2_to_xbar_cycles_per_s, w.l2_to_xbar_peak_per_cycle * w.l2_clock_hz)
            },
            {floor: 'l1', pct: i.l1_elapsed_sol_pct},
            {floor: 'unconflicted', pct: i.l1_elapsed_sol_pct * (1 - least(i.conflict_pct, 100) / 100)},
            {floor: 'flops', pct: greatest(r.flops, t.pct)},
            {floor: 'tensor', pct: r.tensor},
            {floor: 'narrower', pct: greatest(r.narrower, t.pct / 2)},
            {floor: 'bytes', pct: b.pct},
            {floor: 'chain', pct: c.pct},
            {
                floor: 'issue',
                pct: i.issue_elapsed_pct * i.threads_per_inst / coalesce(i.threads_per_warp, 32)
            },
            {floor: 'balanced', pct: 100 - i.imbalance_pct},
            {floor: 'whole_waves', pct: 100 - i.wave_loss_pct},
            {floor: 'nothing', pct: 0.0}
        ]) AS item
    FROM _bottleneck_inputs AS i
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    JOIN kernel_bottleneck AS v USING (report_id, launch_id)
    JOIN kernel_libraries AS k USING (report_id, launch_id)
    LEFT JOIN rates AS r USING (report_id, launch_id)
    LEFT JOIN tensor_pipe AS t USING (report_id, launch_id)
    LEFT JOIN _necessary_bytes AS b USING (report_id, launch_id)
    LEFT JOIN fusion_chains AS c USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    item.floor AS floor,
    least(item.pct, 100) AS pct
FROM floors
WHERE item.pct IS NOT NULL
ORDER BY report_id, launch_id, floor;
