-- Hierarchical roofline (Williams, Waterman, Patterson 2009; Yang 2020): arithmetic intensity, achieved
-- FLOP/s and attainable FLOP/s for each precision and memory level of a launch. There are three peaks: at the
-- measured clock (as in ncu's roofline), at the maximum clock, and as published by the vendor. A launch
-- without floating-point operations, or whose tensor operations were not collected, has rows with precision
-- `none` that show its traffic.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- precision VARCHAR: fp64, fp32, fp16, tensor_ followed by the operand type, or none
-- level VARCHAR: memory level: dram, l2 or l1
-- flop DOUBLE: FLOPs that the launch executed
-- flop_per_s DOUBLE: achieved FLOP/s
-- bytes DOUBLE: bytes moved at this level: bytes_per_s x duration
-- bytes_per_s DOUBLE: achieved bandwidth, byte/s; NULL if not collected (see note)
-- intensity DOUBLE: arithmetic intensity at this level, FLOP/byte
-- peak_bytes_per_s DOUBLE: peak bandwidth of the level at the measured clock, byte/s
-- peak_bytes_per_s_nominal DOUBLE: vendor's DRAM bandwidth, byte/s; NULL for L2 and L1
-- peak_flop_per_s DOUBLE: dense peak at the measured clock, FLOP/s
-- peak_flop_per_s_max_clock DOUBLE: dense peak at the maximum clock, FLOP/s
-- peak_flop_per_s_nominal DOUBLE: vendor's dense peak, FLOP/s; NULL for an unknown GPU
-- ridge DOUBLE: ridge point: arithmetic intensity at which the memory roof and the compute roof meet at the
--   measured clock, FLOP/byte
-- attainable_flop_per_s DOUBLE: FLOP/s that the lower roof allows at this arithmetic intensity and the
--   measured clock
-- roof VARCHAR: lower roof at this arithmetic intensity: compute, or the memory level
-- attained_pct DOUBLE: achieved FLOP/s, % of attainable_flop_per_s; the rest is the distance to the roof
-- pct_of_peak DOUBLE: achieved FLOP/s, % of the dense peak at the measured clock
-- pct_of_peak_max_clock DOUBLE: achieved FLOP/s, % of the dense peak at the maximum clock
-- pct_of_peak_nominal DOUBLE: achieved FLOP/s, % of the vendor's dense peak
-- bandwidth_pct DOUBLE: achieved bandwidth, % of the level's peak bandwidth
-- note VARCHAR: what the level's bytes include, or what to collect; NULL otherwise
-- reason VARCHAR: why FLOPs are unknown or uncertain, and what to collect; NULL otherwise
CREATE VIEW kernel_roofline AS
WITH working AS (
    SELECT report_id, launch_id, precision, flop, flop_per_s, peak_flop_per_cycle, reason
    FROM kernel_flops
    ANTI JOIN _tensor_uncounted USING (report_id, launch_id)
    WHERE flop > 0 OR flop_per_s > 0
),
precisions AS (
    SELECT * FROM working
    UNION ALL BY NAME
    SELECT l.report_id, l.launch_id, 'none' AS precision, f.reason
    FROM ncu_launches AS l
    LEFT JOIN _launch_flops AS f USING (report_id, launch_id)
    ANTI JOIN working USING (report_id, launch_id)
),
peaks AS (
    SELECT
        p.*,
        l.kernel_name,
        p.peak_flop_per_cycle * coalesce(w.sm_clock_hz, w.gpc_clock_hz) AS peak,
        p.peak_flop_per_cycle * w.clock_rate_khz * 1000 AS peak_max_clock,
        v.flop_per_s AS peak_nominal
    FROM precisions AS p
    JOIN ncu_launches AS l USING (report_id, launch_id)
    LEFT JOIN kernel_metrics AS w USING (report_id, launch_id)
    LEFT JOIN gpu_peaks AS v
        ON v.report_id = p.report_id
        AND v.dtype = CASE p.precision
            WHEN 'tensor_fp64' THEN 'fp64_tensor'
            -- The vendor's fp16 peak is that of tensor cores.
            WHEN 'fp16' THEN NULL
            ELSE replace(p.precision, 'tensor_', '')
        END
),
bandwidths AS (
    SELECT report_id, any_value(bytes_per_s) AS bytes_per_s
    FROM gpu_peaks
    GROUP BY report_id
),
placed AS (
    SELECT
        p.*,
        t.level,
        t.bytes_per_s,
        t.bytes_per_s * t.seconds AS bytes,
        t.peak_bytes_per_s,
        CASE t.level WHEN 'dram' THEN b.bytes_per_s END AS peak_bytes_nominal,
        p.flop_per_s / nullif(t.bytes_per_s, 0) AS intensity,
        t.note
    FROM peaks AS p
    LEFT JOIN _kernel_traffic AS t USING (report_id, launch_id)
    LEFT JOIN bandwidths AS b USING (report_id)
)
SELECT
    report_id,
    launch_id,
    kernel_name,
    precision,
    level,
    flop,
    flop_per_s,
    bytes,
    bytes_per_s,
    intensity,
    peak_bytes_per_s,
    peak_bytes_nominal AS peak_bytes_per_s_nominal,
    peak AS peak_flop_per_s,
    peak_max_clock AS peak_flop_per_s_max_clock,
    peak_nominal AS peak_flop_per_s_nominal,
    peak / nullif(peak_bytes_per_s, 0) AS ridge,
    attainable_flop_per_s(peak, intensity, peak_bytes_per_s) AS attainable_flop_per_s,
    CASE
        WHEN memory_roof_flop_per_s(intensity, peak_bytes_per_s) < peak THEN level
        WHEN attainable_flop_per_s(peak, intensity, peak_bytes_per_s) IS NOT NULL THEN 'compute'
    END AS roof,
    pct_of_peak(flop_per_s, attainable_flop_per_s(peak, intensity, peak_bytes_per_s)) AS attained_pct,
    pct_of_peak(flop_per_s, peak) AS pct_of_peak,
    pct_of_peak(flop_per_s, peak_max_clock) AS pct_of_peak_max_clock,
    pct_of_peak(flop_per_s, peak_nominal) AS pct_of_peak_nominal,
    pct_of_peak(bytes_per_s, peak_bytes_per_s) AS bandwidth_pct,
    note,
    reason
FROM placed
ORDER BY report_id, launch_id, precision, level;
