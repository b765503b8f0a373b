-- Theoretical occupancy as a function of one resource at a time, from perfpipe's occupancy calculator. The
-- curves for registers and block size keep the launch's shared-memory carve-out, like ncu's curves. The
-- shared-memory curve assumes the largest carve-out, because the driver would choose it.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- resource VARCHAR: registers, shared_mem or block_size
-- value BIGINT: registers per thread, bytes of shared memory per block (including the shared memory reserved
--   by the driver), or threads per block
-- blocks_per_sm BIGINT: number of blocks that would fit on an SM
-- warps_per_sm BIGINT: number of warps that would fit on an SM
-- occupancy_pct DOUBLE: theoretical occupancy, % of the warp slots
-- current BOOLEAN: whether the point is that of the launch, after rounding the launch's value to the steps of
--   the curve
CREATE VIEW kernel_occupancy_curves AS
WITH launches AS (
    SELECT *
    FROM _occupancy_inputs
    WHERE block_size > 0 AND register_unit IS NOT NULL
),
points AS (
    SELECT *, 'registers' AS resource, unnest(range(8, 256, 8)) AS value FROM launches
    UNION ALL
    SELECT *, 'block_size' AS resource, unnest(range(32, 1025, 32)) AS value FROM launches
    UNION ALL
    SELECT *, 'shared_mem' AS resource, unnest(range(smem_reserved, smem_per_sm + 1, 4096)) AS value
    FROM launches
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
            occupancy_limit_registers(
                CASE resource WHEN 'block_size' THEN value ELSE block_size END,
                CASE resource WHEN 'registers' THEN value ELSE registers END,
                register_file,
                register_unit,
                block_slots
            ),
            CASE resource
                WHEN 'shared_mem'
                    THEN occupancy_limit_shared_mem(
                        occupancy_smem_allocated(value, 0, smem_unit),
                        smem_per_sm,
                        block_slots
                    )
                ELSE occupancy_limit_shared_mem(smem, carveout, block_slots)
            END,
            occupancy_limit_barriers(barriers, barrier_slots, block_slots)
        ) AS blocks_per_sm,
        CASE resource
            WHEN 'registers' THEN value = ceil(registers / 8) * 8
            WHEN 'block_size' THEN value = ceil(block_size / 32) * 32
            ELSE smem BETWEEN value AND value + 4095
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
    100.0 * blocks_per_sm * occupancy_warps(threads) / nullif(warp_slots, 0) AS occupancy_pct,
    current
FROM changed
ORDER BY report_id, launch_id, resource, value;
