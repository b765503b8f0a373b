-- What occupancy would be with other resources, one changed at a time, by perfpipe's calculator.
-- Registers and block size keep the shared-memory carve-out of the launch, as ncu's own curves do;
-- shared memory is followed up to the largest carve-out, which the driver would choose.
--
-- report_id: report
-- launch_id: launch
-- resource: registers, shared_mem or block_size
-- value: registers of a thread, bytes of shared memory of a block (driver's share included), or threads of a block
-- blocks_per_sm: blocks that would fit an SM
-- warps_per_sm: warps that would be active
-- occupancy_pct: of the warp slots, %
-- current: whether the launch has this value; registers count in the units that are allocated
CREATE VIEW kernel_occupancy_curves AS
WITH launches AS (
    SELECT
        w.report_id,
        w.launch_id,
        w.block_size,
        w.registers,
        w.barriers,
        w.smem_allocated,
        coalesce(w.max_warps_per_sm::BIGINT, a.warps) AS warp_slots,
        coalesce(w.max_blocks_per_sm::BIGINT, a.blocks) AS block_slots,
        coalesce(w.max_registers_per_sm::BIGINT, a.registers) AS register_file,
        a.register_unit,
        a.smem_unit,
        a.smem_reserved,
        a.barriers AS barrier_slots,
        coalesce(w.max_smem_per_sm::BIGINT, a.smem_per_sm) AS smem_per_sm,
        coalesce(w.smem_config::BIGINT, w.max_smem_per_sm::BIGINT, a.smem_per_sm) AS carveout
    FROM kernel_metrics AS w
    JOIN ncu_launches AS l USING (report_id, launch_id)
    JOIN gpu_architectures AS a ON a.cc = l.cc
    WHERE w.block_size > 0
),
points AS (
    SELECT *, 'registers' AS resource, unnest(range(8, 256, 8)) AS value FROM launches
    UNION ALL
    SELECT *, 'block_size' AS resource, unnest(range(32, 1025, 32)) AS value FROM launches
    UNION ALL
    SELECT *, 'shared_mem' AS resource, unnest(range(smem_reserved, smem_per_sm + 1, 4096)) AS value FROM launches
),
changed AS (
    SELECT
        report_id,
        launch_id,
        resource,
        value,
        warp_slots,
        CASE resource WHEN 'block_size' THEN value ELSE block_size END AS threads,
        occupancy_blocks(
            occupancy_limit_warps(CASE resource WHEN 'block_size' THEN value ELSE block_size END, warp_slots),
            block_slots,
            occupancy_limit_registers(CASE resource WHEN 'block_size' THEN value ELSE block_size END, CASE resource WHEN 'registers' THEN value ELSE registers END, register_file, register_unit, block_slots),
            CASE resource
                WHEN 'shared_mem' THEN occupancy_limit_shared_mem(occupancy_smem_allocated(value, 0, smem_unit), smem_per_sm, block_slots)
                ELSE occupancy_limit_shared_mem(smem_allocated::BIGINT, carveout, block_slots)
            END,
            occupancy_limit_barriers(barriers, barrier_slots, block_slots)
        ) AS blocks_per_sm,
        CASE resource
            WHEN 'registers' THEN value = ceil(registers / 8) * 8
            WHEN 'block_size' THEN value = ceil(block_size / 32) * 32
            ELSE smem_allocated BETWEEN value AND value + 4095
        END AS current
    FROM points
)
SELECT
    report_id,
    launch_id,
    resource,
    value,
    blocks_per_sm,
    blocks_per_sm * occupancy_warps(threads) AS warps_per_sm,
    100.0 * blocks_per_sm * occupancy_warps(threads) / warp_slots AS occupancy_pct,
    current
FROM changed
ORDER BY report_id, launch_id, resource, value;
