-- Inputs of the occupancy calculator for each launch, from the report, or from the GPU architecture if the
-- report lacks them.
CREATE VIEW _occupancy_inputs AS
SELECT
    w.*,
    coalesce(w.max_warps_per_sm::BIGINT, a.warps) AS warp_slots,
    coalesce(w.max_blocks_per_sm::BIGINT, a.blocks) AS block_slots,
    coalesce(w.max_registers_per_sm::BIGINT, a.registers) AS register_file,
    coalesce(w.max_smem_per_sm::BIGINT, a.smem_per_sm) AS smem_per_sm,
    a.register_unit,
    a.smem_unit,
    a.smem_reserved,
    a.barriers AS barrier_slots,
    coalesce(w.smem_config::BIGINT, w.max_smem_per_sm::BIGINT, a.smem_per_sm) AS carveout,
    coalesce(
        w.smem_allocated::BIGINT,
        occupancy_smem_allocated(
            w.smem_static + w.smem_dynamic,
            coalesce(w.smem_driver, a.smem_reserved),
            a.smem_unit
        )
    ) AS smem
FROM kernel_metrics AS w
JOIN ncu_launches AS l USING (report_id, launch_id)
LEFT JOIN gpu_architectures AS a ON a.cc = l.cc;
