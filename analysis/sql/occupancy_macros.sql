-- The occupancy calculator: number of blocks that fit on an SM, given one resource.  A warp's registers come
-- from the register file of its scheduler (four per SM), in units of `unit` registers.
CREATE MACRO occupancy_warps(block_size) AS greatest(1, ceil(block_size / 32.0)::BIGINT);
CREATE MACRO occupancy_limit_warps(block_size, max_warps) AS
    whole_times(max_warps, occupancy_warps(block_size));
CREATE MACRO occupancy_limit_registers(block_size, registers, registers_per_sm, unit, max_blocks) AS
    CASE WHEN registers > 0
        THEN whole_times(
            4 * whole_times(registers_per_sm / 4, ceil(registers * 32.0 / nullif(unit, 0)) * unit),
            occupancy_warps(block_size)
        )
        WHEN registers = 0 THEN max_blocks END;
CREATE MACRO occupancy_smem_allocated(smem, reserved, unit) AS
    ceil((smem + reserved) * 1.0 / nullif(unit, 0))::BIGINT * unit;
CREATE MACRO occupancy_limit_shared_mem(smem_allocated, smem_per_sm, max_blocks) AS
    CASE
        WHEN smem_allocated > 0 THEN whole_times(smem_per_sm, smem_allocated)
        WHEN smem_allocated = 0 THEN max_blocks
    END;
CREATE MACRO occupancy_limit_barriers(barriers, barriers_per_sm, max_blocks) AS
    CASE WHEN barriers > 0 THEN least(max_blocks, whole_times(barriers_per_sm, barriers))
        WHEN barriers_per_sm IS NOT NULL THEN max_blocks END;
CREATE MACRO occupancy_limit_clusters(max_active, cluster_size, sm_count) AS
    CASE
        WHEN cluster_size > 0 AND max_active > 0
            THEN ceil(max_active * cluster_size / nullif(sm_count, 0))::BIGINT
    END;
-- Unknown unless warps, registers and shared memory are known; barriers only limit kernels that use them.
CREATE MACRO occupancy_blocks(by_warps, max_blocks, by_registers, by_shared_mem, by_barriers) AS
    CASE WHEN by_warps + by_registers + by_shared_mem IS NOT NULL
        THEN least(by_warps, max_blocks, by_registers, by_shared_mem, by_barriers)::BIGINT END;
