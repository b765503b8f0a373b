-- How close each launch is to the roofs of its GPU: the time that the launch's work would take if one roof
-- were the only limit, as a share of the launch's duration. The roof with the largest share is the nearest
-- roof. Time that no roof explains is latency, launch overhead and imbalance. The hardware units behind the
-- roofs work concurrently, so do not add the shares.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- roof VARCHAR: dram; l2; sm (SM units whose peak is proportional to the number of SMs and the SM clock:
--   issue slots, integer and special functions, loads and stores, L1 and shared memory); packed_fp16 (FP16 on
--   CUDA cores); a data type as in gpu_peaks (fp32 and fp64 on CUDA cores, all others on tensor cores); or
--   tensor, if tensor operations were not counted
-- pct DOUBLE: minimum time of the launch's work at this roof, % of the launch's duration: achieved throughput
--   / peak at the measured clocks
-- rank BIGINT: rank of the roof within the launch, from 1 for the nearest
-- peak_per_s DOUBLE: peak of the roof at the measured clock, byte/s or FLOP/s; NULL if the report does not
--   contain it
CREATE VIEW kernel_roofs AS
WITH bandwidths AS (
    SELECT
        report_id,
        launch_id,
        max(peak_bytes_per_s) FILTER (level = 'dram') AS dram,
        max(peak_bytes_per_s) FILTER (level = 'l2') AS l2
    FROM _kernel_traffic
    GROUP BY report_id, launch_id
),
pipes AS (
    SELECT
        report_id,
        launch_id,
        max(pct) FILTER (pipe = 'fma') AS fma,
        max(pct) FILTER (pipe = 'fp64') AS fp64,
        max(pct) FILTER (pipe IN ('alu', 'xu', 'lsu')) AS alike
    FROM kernel_pipes
    GROUP BY report_id, launch_id
),
floating AS (
    SELECT
        report_id,
        launch_id,
        CASE precision
            WHEN 'tensor_fp64' THEN 'fp64_tensor'
            WHEN 'fp16' THEN 'packed_fp16'
            ELSE replace(precision, 'tensor_', '')
        END AS roof,
        coalesce(pct_of_peak, pct_of_peak_nominal) AS pct,
        coalesce(peak_flop_per_s, peak_flop_per_s_nominal) AS peak_per_s
    FROM kernel_roofline
    WHERE level = 'dram' AND precision != 'none'
),
found AS (
    SELECT i.report_id, i.launch_id, unnest([
        {roof: 'dram', pct: i.dram_sol_pct, peak_per_s: b.dram},
        {roof: 'l2', pct: i.l2_sol_pct, peak_per_s: b.l2},
        {
            roof: 'sm',
            pct: greatest(i.issue_elapsed_pct, p.alike, i.l1_elapsed_sol_pct),
            peak_per_s: NULL
        },
        {roof: 'fp32', pct: p.fma, peak_per_s: NULL},
        {roof: 'fp64', pct: p.fp64, peak_per_s: NULL},
        {
            roof: 'tensor',
            pct: CASE WHEN u.launch_id IS NOT NULL THEN of_tensor_peak(i.tensor_pct, i.mma_sync_pct) END,
            peak_per_s: NULL
        }
    ], recursive := true)
    FROM _bottleneck_inputs AS i
    LEFT JOIN bandwidths AS b USING (report_id, launch_id)
    LEFT JOIN pipes AS p USING (report_id, launch_id)
    LEFT JOIN _tensor_uncounted AS u USING (report_id, launch_id)
    UNION ALL BY NAME
    SELECT * FROM floating
),
-- A pipe may be busier than its FLOPs: it also adds, multiplies and moves.
joined AS (
    SELECT report_id, launch_id, roof, least(max(pct), 100) AS pct, max(peak_per_s) AS peak_per_s
    FROM found
    WHERE pct IS NOT NULL
    GROUP BY report_id, launch_id, roof
)
SELECT
    report_id,
    launch_id,
    roof,
    pct,
    row_number() OVER (PARTITION BY report_id, launch_id ORDER BY pct DESC, roof) AS rank,
    peak_per_s
FROM joined
ORDER BY report_id, launch_id, rank;
