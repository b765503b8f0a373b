-- Achieved and peak bandwidth of each memory level for the roofline, from the metrics of NVIDIA's roofline,
-- or as bytes / time if a report lacks these metrics.
CREATE VIEW _kernel_traffic AS
WITH timed AS (
    SELECT
        *,
        coalesce(duration_ns / 1e9, sm_elapsed_cycles / nullif(sm_clock_hz, 0)) AS seconds,
        greatest(
            coalesce(gmma_pipe_pct, 0),
            coalesce(tma_pipe_pct, 0),
            coalesce(tma_load_inst, 0)
        ) > 0 AS bypasses_lsu
    FROM kernel_metrics
    LEFT JOIN (
        SELECT report_id, launch_id, list(name) AS not_finite FROM _not_finite GROUP BY report_id, launch_id
    ) USING (report_id, launch_id)
),
w AS (
    SELECT
        *,
        coalesce(128 * l1_writeback_cycles_per_s, l1_bytes / nullif(seconds, 0)) AS lsu_bytes_per_s,
        coalesce(
            shared_sol_pct / 100 * 128 * l1_writeback_peak_per_cycle * l1_clock_hz,
            128 * shared_wavefronts / nullif(seconds, 0)
        ) AS shared_bytes_per_s
    FROM timed
)
SELECT
    report_id,
    launch_id,
    'dram' AS level,
    coalesce(
        dram_bytes_per_s,
        dram_bytes / nullif(seconds, 0),
        (dram_read_bytes + dram_write_bytes) / nullif(seconds, 0)
    ) AS bytes_per_s,
    dram_peak_bytes_per_cycle * dram_clock_hz AS peak_bytes_per_s,
    CASE
        WHEN dram_bytes_per_s IS NULL AND dram_bytes IS NULL AND dram_read_bytes IS NULL THEN if(
            list_has_any(not_finite, ['dram_bytes_per_s', 'dram_bytes', 'dram_read_bytes']),
            'ncu printed nan',
            'not collected; use ncu --section SpeedOfLight_RooflineChart'
        )
    END AS note,
    seconds
FROM w
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'l2' AS level,
    coalesce(
        32 * l2_to_xbar_cycles_per_s,
        l2_bytes / nullif(seconds, 0),
        32 * l2_sectors / nullif(seconds, 0)
    ) AS bytes_per_s,
    32 * l2_to_xbar_peak_per_cycle * l2_clock_hz AS peak_bytes_per_s,
    CASE
        WHEN l2_to_xbar_cycles_per_s IS NOT NULL THEN 'read returns only; kernel_memory has both directions'
        WHEN l2_bytes IS NULL AND l2_sectors IS NULL THEN if(
            list_has_any(not_finite, ['l2_to_xbar_cycles_per_s', 'l2_bytes', 'l2_sectors']),
            'ncu printed nan',
            'not collected; use ncu --section SpeedOfLight_HierarchicalSingleRooflineChart'
        )
    END AS note,
    seconds
FROM w
UNION ALL BY NAME
-- NVIDIA's L1 number only counts load returns of global and local memory through the LSU. It is close to zero
-- in kernels that mostly use shared memory, and wgmma and TMA bypass the LSU. For such kernels the L1 traffic
-- is shared-memory wavefronts of 128 bytes each.
SELECT
    report_id,
    launch_id,
    'l1' AS level,
    CASE
        WHEN bypasses_lsu OR shared_bytes_per_s > lsu_bytes_per_s THEN shared_bytes_per_s
        ELSE lsu_bytes_per_s
    END AS bytes_per_s,
    128 * l1_writeback_peak_per_cycle * l1_clock_hz AS peak_bytes_per_s,
    CASE
        WHEN bypasses_lsu AND shared_bytes_per_s IS NULL
            THEN 'wgmma and TMA bypass the LSU counter; use ncu --section MemoryWorkloadAnalysis_Chart'
        WHEN bypasses_lsu THEN 'shared-memory wavefronts, since wgmma and TMA bypass the LSU counter'
        WHEN shared_bytes_per_s > lsu_bytes_per_s
            THEN 'shared-memory wavefronts, which outweigh global and local loads'
        WHEN l1_writeback_cycles_per_s IS NOT NULL
            THEN 'load returns of global and local memory; excludes shared memory'
        WHEN l1_bytes IS NULL THEN if(
            list_has_any(not_finite, ['l1_writeback_cycles_per_s', 'l1_bytes']),
            'ncu printed nan',
            'not collected; use ncu --section SpeedOfLight_HierarchicalSingleRooflineChart'
        )
    END AS note,
    seconds
FROM w;
