-- Key numbers of each launch in one row: FLOP/s, percentage of peak, traffic and resource use. FLOP values
-- refer to the precision that is closest to its peak. HFU counts the FLOPs that the hardware executed. MFU
-- counts the FLOPs that the model needs, as declared with 'perfpipe work' or in a workload file (for the
-- configurations of a workload, see run_efficiency).
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- precision VARCHAR: precision that is closest to its peak; NULL without floating-point operations, or if not
--   all were collected
-- flop DOUBLE: FLOPs that the launch executed in the row's precision
-- flop_per_s DOUBLE: achieved FLOP/s
-- pct_of_peak DOUBLE: achieved FLOP/s, % of the dense peak at the measured clock
-- pct_of_peak_max_clock DOUBLE: achieved FLOP/s, % of the dense peak at the maximum clock
-- hfu_pct DOUBLE: HFU: FLOPs that the hardware executed / duration, % of the vendor's dense peak
-- mfu_pct DOUBLE: MFU: model_flop / duration, % of the vendor's dense peak
-- model_flop DOUBLE: FLOPs that the algorithm needs, as declared with 'perfpipe work'
-- model_intensity DOUBLE: arithmetic intensity of the algorithm: model_flop / bytes that the algorithm must
--   move, FLOP/byte
-- intensity DOUBLE: arithmetic intensity: FLOPs / DRAM bytes, FLOP/byte
-- intensity_band VARCHAR: memory, mixed or compute, by a rule of thumb for the arithmetic intensity (below 5,
--   5 to 20, above 20 FLOP/byte); compare intensity with ridge
-- ridge DOUBLE: ridge point of this GPU, FLOP/byte
-- attained_pct DOUBLE: achieved FLOP/s, % of the FLOP/s that the DRAM roofline allows
-- dram_bytes_per_s DOUBLE: achieved DRAM bandwidth, byte/s
-- dram_pct_nominal DOUBLE: achieved DRAM bandwidth, % of the vendor's bandwidth
-- registers_per_block BIGINT: registers per block
-- smem_per_block BIGINT: shared memory per block, bytes
-- registers_pct DOUBLE: registers used by the resident blocks, % of the SM's registers
-- smem_pct DOUBLE: shared memory used by the resident blocks, % of the SM's shared memory
-- reason VARCHAR: why FLOP/s and HFU are NULL or uncertain, and what to collect; NULL otherwise
CREATE VIEW kernel_summary AS
WITH dominant AS (
    SELECT *
    FROM kernel_roofline
    WHERE level = 'dram'
    QUALIFY row_number() OVER (
        PARTITION BY report_id, launch_id
        ORDER BY
            reason IS NOT NULL,
            coalesce(pct_of_peak, pct_of_peak_nominal) DESC NULLS LAST,
            flop_per_s DESC NULLS LAST,
            precision
    ) = 1
),
stated AS (
    SELECT
        l.report_id,
        l.launch_id,
        w.flop,
        w.bytes,
        pct_of_peak(w.flop / nullif(l.duration_ns / 1e9, 0), p.flop_per_s) AS mfu_pct
    FROM ncu_launches AS l
    JOIN _launch_work AS w USING (report_id, launch_id)
    LEFT JOIN gpu_peaks AS p ON p.report_id = l.report_id AND p.dtype = w.dtype
)
SELECT
    l.report_id,
    l.launch_id,
    l.kernel_name,
    nullif(d.precision, 'none') AS precision,
    d.flop,
    d.flop_per_s,
    d.pct_of_peak,
    d.pct_of_peak_max_clock,
    d.pct_of_peak_nominal AS hfu_pct,
    t.mfu_pct,
    t.flop AS model_flop,
    t.flop / nullif(t.bytes, 0) AS model_intensity,
    d.intensity,
    intensity_band(d.intensity) AS intensity_band,
    d.ridge,
    d.attained_pct,
    d.bytes_per_s AS dram_bytes_per_s,
    pct_of_peak(d.bytes_per_s, d.peak_bytes_per_s_nominal) AS dram_pct_nominal,
    try_cast(ceil(w.registers / 8) * 8 * occupancy_warps(w.block_size) * 32 AS BIGINT) AS registers_per_block,
    o.smem_allocated AS smem_per_block,
    100.0 * ceil(w.registers / 8) * 8 * occupancy_warps(w.block_size) * 32 * o.blocks_per_sm
        / nullif(w.max_registers_per_sm, 0) AS registers_pct,
    100.0 * o.smem_allocated * o.blocks_per_sm / nullif(w.max_smem_per_sm, 0) AS smem_pct,
    d.reason
FROM ncu_launches AS l
LEFT JOIN dominant AS d USING (report_id, launch_id)
LEFT JOIN stated AS t USING (report_id, launch_id)
LEFT JOIN kernel_metrics AS w USING (report_id, launch_id)
LEFT JOIN kernel_occupancy AS o USING (report_id, launch_id)
ORDER BY l.report_id, l.launch_id;
