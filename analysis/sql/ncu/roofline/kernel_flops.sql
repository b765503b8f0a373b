-- Floating-point operations that the counters saw, for each precision with its peak.  CUDA cores:
-- thread instructions not predicated off, a fused multiply-add being 2 and a packed FP16 instruction
-- working on 2 values.  Tensor cores: sm__ops_path_tensor_*, whose aggregates count the work of their
-- leaves again and state the peak of 2:4 sparsity; leaves are read where there are any, and the peak
-- is the dense one.
--
-- report_id: report
-- launch_id: launch
-- precision: fp64, fp32, fp16, or tensor_ and the type of the operands
-- flop: operations of the launch
-- flop_per_s: operations in a second, at the clock of the pass that counted them
-- peak_flop_per_cycle: dense peak of the GPU in a cycle; NULL where the counters do not tell it
CREATE VIEW kernel_flops AS
WITH per_prefix AS (
    SELECT m.report_id, m.launch_id, f.precision, f.part, ordered_sum(m.value * f.flop) AS value
    FROM ncu_metrics AS m
    JOIN _flop_metrics AS f USING (metric)
    GROUP BY m.report_id, m.launch_id, f.precision, f.part, f.prefix
),
counted AS (
    -- The same counter on SM and on sub-partition: either will do.
    SELECT
        report_id,
        launch_id,
        precision,
        max(value) FILTER (WHERE part = 'sum') AS flop,
        max(value) FILTER (WHERE part = 'per_cycle') AS flop_per_cycle,
        max(value) FILTER (WHERE part = 'per_s') AS flop_per_s
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
)
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
    e.peak AS peak_flop_per_cycle
FROM every AS e
JOIN kernel_metrics AS w USING (report_id, launch_id)
ORDER BY e.report_id, e.launch_id, e.precision;
