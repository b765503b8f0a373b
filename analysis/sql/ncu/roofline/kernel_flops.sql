-- Floating-point operations counted for each launch, by precision, with the peak. FLOPs on CUDA cores are
-- counted from thread instructions that are not predicated off: a fused multiply-add counts as 2 operations,
-- and a packed FP16 instruction operates on 2 values. Packed FP16 instructions that only move data are
-- subtracted if they were counted. FLOPs on tensor cores come from the metrics sm__ops_path_tensor_*. Leaf
-- metrics with the dense peak are preferred, because aggregate metrics count the same operations again and
-- use the 2:4 sparse peak.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- precision VARCHAR: fp64, fp32, fp16, or tensor_ followed by the operand type; tensor if the tensor pipe was
--   busy but tensor operations were not collected
-- flop DOUBLE: FLOPs that the launch executed; NULL if not collected
-- flop_per_s DOUBLE: achieved FLOP/s, at the clock of the pass that counted the FLOPs
-- peak_flop_per_cycle DOUBLE: dense peak of the GPU, FLOP/cycle; NULL if the counters do not provide it
-- reason VARCHAR: why flop is NULL or uncertain, and what to collect; NULL otherwise
CREATE VIEW kernel_flops AS
WITH per_prefix AS (
    SELECT
        m.report_id,
        m.launch_id,
        f.precision,
        f.part,
        ordered_sum(m.value * f.flop) AS value,
        bool_or(m.value > 0 AND contains(m.metric, '_op_hfma_')) AS packed_fma
    FROM ncu_metrics AS m
    JOIN _flop_metrics AS f USING (metric)
    GROUP BY m.report_id, m.launch_id, f.precision, f.part, f.prefix
),
counted AS (
    -- The same counter per SM and per sub-partition; either is sufficient.
    SELECT
        report_id,
        launch_id,
        precision,
        max(value) FILTER (WHERE part = 'sum') AS flop,
        max(value) FILTER (WHERE part = 'per_cycle') AS flop_per_cycle,
        max(value) FILTER (WHERE part = 'per_s') AS flop_per_s,
        bool_or(packed_fma) AS packed_fma
    FROM per_prefix
    GROUP BY report_id, launch_id, precision
),
paths AS (
    SELECT
        m.report_id,
        m.launch_id,
        t.precision,
        t.path,
        t.aggregate,
        max(m.value) FILTER (WHERE t.part = 'flop') AS flop,
        max(m.value) FILTER (WHERE t.part = 'flop_per_s') AS flop_per_s,
        max(m.value) FILTER (WHERE t.part = 'flop_per_cycle') AS flop_per_cycle,
        max(m.value * t.dense) FILTER (WHERE t.part = 'peak_per_cycle') AS peak
    FROM ncu_metrics AS m
    JOIN _tensor_metrics AS t USING (metric)
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE coalesce(cc_number(l.cc) BETWEEN t.cc_low AND t.cc_high, true)
    GROUP BY m.report_id, m.launch_id, t.precision, t.path, t.aggregate
),
tensor AS (
    SELECT
        report_id,
        launch_id,
        precision,
        ordered_sum(flop) AS flop,
        ordered_sum(flop_per_s) AS flop_per_s,
        ordered_sum(flop_per_cycle) AS flop_per_cycle,
        coalesce(max(peak) FILTER (WHERE coalesce(flop, flop_per_s, flop_per_cycle) > 0), max(peak)) AS peak
    FROM paths
    WHERE coalesce(flop, flop_per_s, flop_per_cycle) IS NOT NULL
    GROUP BY report_id, launch_id, precision, aggregate
    QUALIFY row_number() OVER (PARTITION BY report_id, launch_id, precision ORDER BY aggregate) = 1
),
every AS (
    SELECT * FROM tensor
    UNION ALL BY NAME
    SELECT
        c.*,
        CASE c.precision
            WHEN 'fp32' THEN 2 * w.ffma_peak_per_cycle
            WHEN 'fp64' THEN 2 * w.dfma_peak_per_cycle
            ELSE 4 * w.hfma_peak_per_cycle
        END AS peak
    FROM counted AS c
    JOIN kernel_metrics AS w USING (report_id, launch_id)
),
-- Threads that moved a constant or a register with a packed FP16 multiply-add of zeros, such as HFMA2.MMA R5,
-- -RZ, RZ, 0, 0: ncu counts 4 FLOP each. A launch has a row if its instructions were counted by thread.
register_moves AS (
    SELECT
        s.report_id,
        s.launch_id,
        ordered_sum(CASE
            WHEN regexp_matches(s.sass, '^(@!?U?P\w+ +)?HFMA2(\.\w+)* +\w+, *-?RZ, *-?RZ, ')
                THEN coalesce(i.value, s.thread_executions)
            ELSE 0
        END) AS threads
    FROM ncu_source AS s
    -- Not predicated off, as in the counters.
    LEFT JOIN ncu_instances AS i
        ON i.report_id = s.report_id
        AND i.launch_id = s.launch_id
        AND i.metric = 'thread_inst_executed_true'
        AND i.key_int = s.address
    WHERE s.thread_executions IS NOT NULL
    GROUP BY s.report_id, s.launch_id
),
rated AS (
    SELECT
        e.report_id,
        e.launch_id,
        e.precision,
        coalesce(
            e.flop,
            e.flop_per_cycle * coalesce(w.smsp_elapsed_cycles, w.sm_elapsed_cycles),
            e.flop_per_s * w.duration_ns / 1e9
        ) AS flop,
        coalesce(
            e.flop_per_s,
            e.flop_per_cycle * coalesce(w.smsp_clock_hz, w.sm_clock_hz),
            e.flop / nullif(coalesce(w.duration_ns / 1e9, w.sm_elapsed_cycles / w.sm_clock_hz), 0)
        ) AS flop_per_s,
        e.peak,
        CASE WHEN e.packed_fma THEN v.threads END AS moves,
        CASE
            WHEN e.packed_fma AND v.threads IS NULL
                THEN 'may be register moves (HFMA2 R, -RZ, RZ, ...); use ncu --section SourceCounters'
        END AS reason
    FROM every AS e
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    LEFT JOIN register_moves AS v USING (report_id, launch_id)
),
shares AS (
    -- Passes differ a little in their cycles, so that a small rest is treated as 0.
    SELECT *, coalesce(1 - 4 * moves / nullif(flop, 0), 1) AS share
    FROM rated
)
SELECT
    report_id,
    launch_id,
    precision,
    CASE WHEN share > threshold('flop.rest_share') THEN flop * share ELSE 0 END AS flop,
    CASE WHEN share > threshold('flop.rest_share') THEN flop_per_s * share ELSE 0 END AS flop_per_s,
    peak AS peak_flop_per_cycle,
    reason
FROM shares
UNION ALL
SELECT report_id, launch_id, 'tensor' AS precision, NULL, NULL, NULL, tensor_not_collected() AS reason
FROM _tensor_uncounted
ORDER BY report_id, launch_id, precision;
