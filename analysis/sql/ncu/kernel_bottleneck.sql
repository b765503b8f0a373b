-- What bounds each launch, by the conditions of NVIDIA's SOLBottleneck rule, recomputed from the
-- metrics, with the report's own verdict beside it.  A launch whose SOL metrics were not
-- collected is `unknown`; nothing is guessed.
--
-- report_id: report
-- launch_id: launch
-- bound: compute, memory, latency, launch (too small to fill the GPU), balanced or unknown
-- subclass: for memory the busiest of dram, l2 and l1; for launch small_grid; else NULL
-- confidence: high, or low where a clock drift or an L2 beyond the threshold contradicts
-- verdict: title of the rule's result by the recomputed conditions
-- ncu_verdict: title of NVIDIA's own result in the report; NULL where it has none
-- agrees_with_ncu: whether both are the same; NULL without NVIDIA's result
-- evidence: JSON list of metric, value, threshold and unit
CREATE VIEW kernel_bottleneck AS
WITH limits AS (
    SELECT
        max(value) FILTER (WHERE name = 'sol.high_pct') AS high,
        max(value) FILTER (WHERE name = 'sol.latency_pct') AS low,
        max(value) FILTER (WHERE name = 'sol.balanced_points') AS points,
        max(value) FILTER (WHERE name = 'sol.full_wave') AS full_wave
    FROM _thresholds
),
verdicts AS (
    SELECT
        s.*,
        limits.*,
        s.compute_sol_pct AS c,
        s.memory_sol_pct AS m,
        CASE
            WHEN s.max_sol_pct IS NULL THEN NULL
            WHEN s.max_sol_pct >= high THEN 'High Throughput'
            WHEN s.max_sol_pct < low AND s.waves < full_wave THEN 'Small Grid'
            WHEN s.max_sol_pct < low THEN 'Latency Issue'
            WHEN abs(s.compute_sol_pct - s.memory_sol_pct) < points THEN 'Balanced Throughput'
            WHEN s.compute_sol_pct > s.memory_sol_pct THEN 'High Compute Throughput'
            ELSE 'High Memory Throughput'
        END AS verdict
    FROM kernel_sol AS s
    CROSS JOIN limits
),
ncu AS (
    SELECT report_id, launch_id, any_value(title ORDER BY result_index) AS title
    FROM ncu_rules
    WHERE rule = 'SOLBottleneck' AND title IS NOT NULL
    GROUP BY report_id, launch_id
),
bounds AS (
    SELECT
        *,
        CASE verdict
            WHEN 'Small Grid' THEN 'launch'
            WHEN 'Latency Issue' THEN 'latency'
            WHEN 'Balanced Throughput' THEN 'balanced'
            WHEN 'High Compute Throughput' THEN 'compute'
            WHEN 'High Memory Throughput' THEN 'memory'
            WHEN 'High Throughput' THEN CASE WHEN c >= m THEN 'compute' ELSE 'memory' END
            ELSE 'unknown'
        END AS bound
    FROM verdicts
)
SELECT
    b.report_id,
    b.launch_id,
    b.bound,
    CASE
        WHEN b.bound = 'launch' THEN 'small_grid'
        WHEN b.bound != 'memory' THEN NULL
        WHEN b.dram_sol_pct >= coalesce(greatest(b.l2_sol_pct, b.l1_sol_pct), 0) THEN 'dram'
        WHEN b.l2_sol_pct >= coalesce(b.l1_sol_pct, 0) THEN 'l2'
        WHEN b.l1_sol_pct IS NOT NULL THEN 'l1'
    END AS subclass,
    CASE
        WHEN b.verdict IS NULL THEN NULL
        WHEN b.bound IN ('latency', 'launch') AND b.l2_sol_pct >= b.high THEN 'low'
        ELSE 'high'
    END AS confidence,
    b.verdict,
    ncu.title AS ncu_verdict,
    b.verdict = ncu.title AS agrees_with_ncu,
    to_json([
        {metric: 'sm__throughput.avg.pct_of_peak_sustained_elapsed', value: b.c, threshold: CASE WHEN b.max_sol_pct >= b.high THEN b.high ELSE b.low END, unit: '%'},
        {metric: 'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed', value: b.m, threshold: CASE WHEN b.max_sol_pct >= b.high THEN b.high ELSE b.low END, unit: '%'},
        {metric: 'launch__waves_per_multiprocessor', value: b.waves, threshold: b.full_wave, unit: 'waves'}
    ]) AS evidence
FROM bounds AS b
LEFT JOIN ncu USING (report_id, launch_id)
ORDER BY b.report_id, b.launch_id;
