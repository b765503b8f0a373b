-- Occupancy of each launch: active warps per SM relative to the maximum, the limiting resources (several if
-- they tie), and how well the grid fills the GPU. Limits come from ncu, or are calculated if a report does
-- not contain them. NVIDIA's occupancy rule ignores barriers and clusters.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- block_size BIGINT: threads per block
-- registers BIGINT: registers per thread
-- smem_allocated BIGINT: shared memory allocated per block, bytes
-- theoretical_occupancy_pct DOUBLE: theoretical occupancy: warps that fit on an SM, % of its warp slots
-- calculated_occupancy_pct DOUBLE: theoretical occupancy according to perfpipe's occupancy calculator, %
-- achieved_occupancy_pct DOUBLE: achieved occupancy: mean active warps, % of the warp slots
-- achieved_warps DOUBLE: mean active warps per SM
-- limit_warps BIGINT: maximum blocks per SM given the number of warp slots
-- limit_blocks BIGINT: maximum blocks per SM given the number of block slots
-- limit_registers BIGINT: maximum blocks per SM given the kernel's register use
-- limit_shared_mem BIGINT: maximum blocks per SM given the kernel's shared-memory use
-- limit_barriers BIGINT: maximum blocks per SM given the kernel's named barriers; NULL below compute
--   capability 9.0
-- limit_clusters BIGINT: maximum blocks per SM given the cluster size; NULL without clusters
-- blocks_per_sm BIGINT: number of blocks that fit on an SM: the smallest limit
-- limiters VARCHAR[]: resources whose limit equals blocks_per_sm
-- waves DOUBLE: blocks in the grid / blocks that fit on the GPU at once
-- full_waves BIGINT: number of full waves
-- tail_blocks BIGINT: number of blocks in the partial last wave; 0 without a partial wave
-- tail_pct DOUBLE: share of the run time that the partial last wave may cost if all blocks take equally long,
--   %; NULL without a full wave
CREATE VIEW kernel_occupancy AS
WITH calculated AS (
    SELECT
        *,
        occupancy_limit_warps(block_size, warp_slots) AS by_warps,
        occupancy_limit_registers(
            block_size,
            registers,
            register_file,
            register_unit,
            block_slots
        ) AS by_registers,
        occupancy_limit_shared_mem(smem, carveout, block_slots) AS by_shared_mem,
        occupancy_limit_barriers(barriers, barrier_slots, block_slots) AS by_barriers,
        occupancy_limit_clusters(cluster_max_active, cluster_size, sm_count) AS by_clusters
    FROM _occupancy_inputs
),
mapped AS (
    SELECT
        *,
        map {
            'warps': coalesce(limit_warps::BIGINT, by_warps),
            'blocks': coalesce(limit_blocks::BIGINT, block_slots),
            'registers': coalesce(limit_registers::BIGINT, by_registers),
            'shared_mem': coalesce(limit_shared_mem::BIGINT, by_shared_mem),
            'barriers': coalesce(limit_barriers::BIGINT, by_barriers),
            'clusters': by_clusters
        } AS limits,
        occupancy_blocks(by_warps, block_slots, by_registers, by_shared_mem, by_barriers) AS calculated_blocks
    FROM calculated
),
bounded AS (
    SELECT
        *,
        list_min(map_values(limits)) AS blocks,
        grid_size::BIGINT AS grid,
        sm_count::BIGINT * list_min(map_values(limits)) AS wave
    FROM mapped
)
SELECT
    b.report_id,
    b.launch_id,
    l.kernel_name,
    b.block_size::BIGINT AS block_size,
    b.registers::BIGINT AS registers,
    b.smem AS smem_allocated,
    coalesce(
        b.theoretical_occupancy_pct,
        100.0 * b.calculated_blocks * occupancy_warps(b.block_size) / nullif(b.warp_slots, 0)
    ) AS theoretical_occupancy_pct,
    100.0 * b.calculated_blocks * occupancy_warps(b.block_size)
        / nullif(b.warp_slots, 0) AS calculated_occupancy_pct,
    b.achieved_occupancy_pct,
    b.achieved_warps,
    b.limits['warps'] AS limit_warps,
    b.limits['blocks'] AS limit_blocks,
    b.limits['registers'] AS limit_registers,
    b.limits['shared_mem'] AS limit_shared_mem,
    b.limits['barriers'] AS limit_barriers,
    b.limits['clusters'] AS limit_clusters,
    b.blocks AS blocks_per_sm,
    list_filter(map_keys(b.limits), lambda name: b.limits[name] = b.blocks) AS limiters,
    coalesce(b.waves, b.grid_size / nullif(b.wave, 0)) AS waves,
    b.grid // nullif(b.wave, 0) AS full_waves,
    b.grid % nullif(b.wave, 0) AS tail_blocks,
    CASE
        WHEN b.grid < b.wave THEN NULL
        WHEN b.grid % nullif(b.wave, 0) = 0 THEN 0
        ELSE 100.0 / (1 + b.grid // nullif(b.wave, 0))
    END AS tail_pct
FROM bounded AS b
JOIN ncu_launches AS l USING (report_id, launch_id)
ORDER BY b.report_id, b.launch_id;
