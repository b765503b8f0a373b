-- Features of each launch, derived from its counters and names. Each technique requires certain features, in
-- addition to a bottleneck class. A feature whose metrics were not collected is not listed.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- features VARCHAR[]: any of: closed (library code that the user cannot change), open, triton, cuda (open,
--   not Triton), product (matrix product or attention; in XLA programs also convolution), convolution, nhwc
--   or no_nhwc (a convolution whose name does or does not indicate NHWC), optimizer (not fused), fused (fused
--   optimizer), framework (another library operator), tensor, no_tensor, mma_sync (warp-level matrix
--   instructions on a GPU with faster warpgroup-level instructions), wide (most FLOPs in 32 or 64 bits, or
--   TF32), half (16-bit tensor operands, for which FP8 would be possible; wide and half are inferred from the
--   name if tensor operations were not counted), shared, no_shared (use of shared memory), loads_again (the
--   kernel executes FLOPs, and most of its loads hit L1), elementwise, neighbor (the same stream and NVTX
--   ranges contain other kernels), after_tensor (the preceding kernel uses tensor cores), uncoalesced,
--   conflicts, spills, local (much local memory; if spills were counted, arrays), atomics, divergent,
--   registers_limit, shared_limit, blocks_limit (occupancy limiters), narrow_blocks (fewer than 32 threads,
--   or idle lanes in the last warp), fp64_for_floats (the FP64 pipe is used, and all arguments are float or
--   integers), tail
-- category VARCHAR: what the kernel does, as in kernel_categories
-- flop DOUBLE: FLOPs on CUDA and tensor cores
-- tensor_flop DOUBLE: FLOPs on tensor cores; NULL if not collected
-- fusion_bytes DOUBLE: traffic that fusion would save if an elementwise kernel follows a tensor-core kernel:
--   the elementwise kernel's writes and its reads of the tensor-core kernel's result, bytes
CREATE VIEW kernel_features AS
WITH work AS (
    SELECT
        report_id,
        launch_id,
        ordered_sum(flop) AS flop,
        ordered_sum(CASE WHEN starts_with(precision, 'tensor_') THEN flop END) AS tensor_flop,
        arg_max(precision, flop) IN ('fp64', 'fp32', 'tensor_fp64', 'tensor_tf32') AND max(flop) > 0 AS wide,
        arg_max(precision, flop) IN ('tensor_fp16', 'tensor_bf16') AND max(flop) > 0 AS half
    FROM kernel_flops
    GROUP BY report_id, launch_id
),
shown AS (
    SELECT
        w.report_id,
        w.launch_id,
        f.flop,
        f.tensor_flop,
        -- Some GPUs run packed FP16 on the tensor pipe, so only matrix instructions or a busy pipe count.
        coalesce(f.tensor_flop > 0, i.tensor_pct >= threshold('rule.pipe_low_pct')) AS tensor,
        i.mma_sync_pct IS NOT NULL AS mma_sync,
        -- The other counters do not show the type of the tensor operands.
        if(u.launch_id IS NULL, coalesce(f.half, false), n.operands = 'half') AS half,
        if(
            u.launch_id IS NULL,
            coalesce(f.wide, i.pipe = 'fp64' AND i.pipe_pct >= threshold('rule.pipe_low_pct'), false),
            n.operands = 'wide'
        ) AND NOT coalesce(i.fp64_for_floats, false) AS wide,
        i.fp64_for_floats,
        is_narrow(i.block_size) AS narrow_blocks,
        w.smem_static + w.smem_dynamic > 0 AS shared,
        w.smem_static + w.smem_dynamic = 0
            AND coalesce(f.tensor_flop, 0) = 0
            AND coalesce(y.atomic_requests, 0) = 0 AS elementwise,
        f.flop > 0 AND y.l1_hit_pct >= threshold('memory.loads_again_pct') AS loads_again,
        i.uncoalesced,
        i.conflict_pct >= 100 * threshold('memory.conflict_share') AS conflicts,
        i.spills,
        i.uses_local,
        i.atomic_pct >= 100 * threshold('memory.atomic_share') AS atomics,
        is_divergent(i.threads_per_inst, i.threads_per_warp, threshold('rule.threads')) AS divergent,
        list_contains(i.limiters, 'registers')
            AND i.occupancy_pct < threshold('rule.occupancy_pct') AS registers_limit,
        list_contains(i.limiters, 'shared_mem')
            AND i.occupancy_pct < threshold('rule.occupancy_pct') AS shared_limit,
        list_contains(i.limiters, 'blocks')
            AND i.occupancy_pct < threshold('rule.occupancy_pct') AS blocks_limit,
        -- If the counters show that all SMs work equally long, there is no tail, whatever the grid.
        i.wave_loss_pct >= threshold('latency.tail_pct')
            AND coalesce(i.imbalance_pct >= threshold('latency.imbalance_pct'), true) AS tail,
        y.l2_read_bytes + y.l2_write_bytes AS moved
    FROM kernel_metrics AS w
    LEFT JOIN kernel_memory AS y USING (report_id, launch_id)
    LEFT JOIN work AS f USING (report_id, launch_id)
    LEFT JOIN _bottleneck_inputs AS i USING (report_id, launch_id)
    LEFT JOIN _tensor_uncounted AS u USING (report_id, launch_id)
    LEFT JOIN (
        SELECT report_id, launch_id, kernel_operands(coalesce(kernel_demangled, kernel_name)) AS operands
        FROM ncu_launches
    ) AS n USING (report_id, launch_id)
),
ordered AS (
    -- The preceding kernel on the stream within the same NVTX ranges.
    SELECT
        s.* EXCLUDE (elementwise),
        kernel_category(l.kernel_name, coalesce(l.kernel_demangled, l.kernel_name)) AS category,
        -- Helpers of products and optimizers use no shared memory either.
        s.elementwise AND category NOT IN ('gemm', 'convolution', 'attention', 'optimizer') AS elementwise,
        b.closed,
        b.library,
        contains(lower(coalesce(l.kernel_demangled, l.kernel_name)), 'nhwc') AS nhwc,
        cc_number(l.cc) >= 89 AS has_fp8,
        kernel_operator(l.kernel_name, coalesce(l.kernel_demangled, l.kernel_name))
            = 'fused_optimizer' AS fused,
        bool_or(b.library = 'xla') OVER (PARTITION BY s.report_id) AS of_xla,
        lag(s.tensor) OVER (
            PARTITION BY s.report_id, l.stream, l.nvtx_path ORDER BY s.launch_id
        ) AS after_tensor,
        count(*) OVER (PARTITION BY s.report_id, l.stream, l.nvtx_path) > 1 AS neighbor
    FROM shown AS s
    JOIN ncu_launches AS l USING (report_id, launch_id)
    JOIN kernel_libraries AS b USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    list_filter([
        if(closed, 'closed', 'open'),
        CASE WHEN library = 'triton' THEN 'triton' WHEN NOT closed THEN 'cuda' END,
        CASE
            WHEN category IN ('gemm', 'attention') THEN 'product'
            -- XLA tries the algorithms of its convolutions automatically.
            WHEN category = 'convolution' THEN if(of_xla, 'product', 'convolution')
            WHEN category = 'optimizer' THEN if(fused, 'fused', 'optimizer')
            WHEN closed AND NOT is_generated(library) THEN 'framework'
        END,
        CASE WHEN category = 'convolution' AND NOT of_xla THEN if(nhwc, 'nhwc', 'no_nhwc') END,
        CASE WHEN tensor THEN 'tensor' WHEN NOT tensor THEN 'no_tensor' END,
        CASE WHEN mma_sync THEN 'mma_sync' END,
        CASE WHEN wide THEN 'wide' WHEN half AND has_fp8 AND category != 'convolution' THEN 'half' END,
        CASE WHEN shared THEN 'shared' WHEN NOT shared THEN 'no_shared' END,
        CASE WHEN loads_again THEN 'loads_again' END,
        CASE WHEN elementwise THEN 'elementwise' END,
        CASE WHEN neighbor THEN 'neighbor' END,
        CASE WHEN after_tensor THEN 'after_tensor' END,
        CASE WHEN uncoalesced THEN 'uncoalesced' END,
        CASE WHEN conflicts THEN 'conflicts' END,
        CASE WHEN spills THEN 'spills' WHEN uses_local THEN 'local' END,
        CASE WHEN atomics THEN 'atomics' END,
        CASE WHEN divergent THEN 'divergent' END,
        CASE WHEN registers_limit THEN 'registers_limit' END,
        CASE WHEN shared_limit THEN 'shared_limit' END,
        CASE WHEN blocks_limit THEN 'blocks_limit' END,
        CASE WHEN narrow_blocks THEN 'narrow_blocks' END,
        CASE WHEN fp64_for_floats THEN 'fp64_for_floats' END,
        CASE WHEN tail THEN 'tail' END
    ], lambda feature: feature IS NOT NULL) AS features,
    category,
    flop,
    tensor_flop,
    CASE WHEN elementwise AND after_tensor THEN moved END AS fusion_bytes
FROM ordered
ORDER BY report_id, launch_id;
