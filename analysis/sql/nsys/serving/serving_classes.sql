-- Iterations of a server's engine by class, and the time between them: shares of the captured window, from
-- its first to its last iteration, add up to 100 %. Roofs are of the iterations whose roof is known.
--
-- report_id VARCHAR: report of the timeline
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- device BIGINT: physical GPU number
-- class VARCHAR: prefill, decode, mixed or unknown, as in serving_iterations; between (no iteration runs
--   although requests are in progress) or empty (no request is in progress)
-- iterations BIGINT: number of iterations; of intervals for between and empty
-- time_ns BIGINT: total time, ns
-- share_pct DOUBLE: time_ns, % of the window
-- p50_ms DOUBLE: median time of an iteration, ms
-- p95_ms DOUBLE: 95th percentile, ms; NULL below 59 iterations (threshold serving.least_p95)
-- busy_pct DOUBLE: time in which the GPU is busy, % of time_ns; NULL for between and empty
-- kernels_pct DOUBLE: time of kernels, % of time_ns
-- copies_pct DOUBLE: time of copies without kernels, % of time_ns
-- gaps_pct DOUBLE: time in which the GPU is idle between operations of an iteration, % of time_ns
-- host_pct DOUBLE: time before the first and after the last operation of an iteration, % of time_ns
-- batch_p50 DOUBLE: median number of requests in an iteration; NULL if unknown
-- batch_max BIGINT: largest number
-- tokens_p50 DOUBLE: median number of tokens that an iteration computes; NULL if unknown
-- roof VARCHAR: the lower roof of most iterations, dram or tensor; NULL if unknown
-- roof_pct DOUBLE: time at the roof, % of the time of these iterations
-- missing VARCHAR: why roof_pct is NULL
-- evidence VARCHAR: origins of the class, as in serving_iterations
CREATE VIEW serving_classes AS
WITH parts AS (
    SELECT *, prefills + decodes AS batch, prefill_tokens + decodes AS tokens
    FROM serving_iterations
    UNION ALL BY NAME
    SELECT report_id, load_id, rate, device, 'between' AS class, between_ns AS time_ns
    FROM serving_iterations
    WHERE between_ns > 0
    UNION ALL BY NAME
    SELECT report_id, load_id, rate, device, 'empty' AS class, empty_ns AS time_ns
    FROM serving_iterations
    WHERE empty_ns > 0
),
sums AS (
    SELECT
        report_id,
        load_id,
        rate,
        device,
        class,
        count(*) AS iterations,
        sum(time_ns)::BIGINT AS time_ns,
        median(time_ns) / 1e6 AS p50_ms,
        CASE WHEN count(*) >= threshold('serving.least_p95') THEN quantile_cont(time_ns, 0.95) / 1e6 END
            AS p95_ms,
        sum(kernels_ns) AS kernels_ns,
        sum(copies_ns) AS copies_ns,
        sum(gaps_ns) AS gaps_ns,
        sum(host_ns) AS host_ns,
        median(batch) AS batch_p50,
        max(batch) AS batch_max,
        median(tokens) AS tokens_p50,
        CASE
            WHEN 2 * count(*) FILTER (roof = 'tensor') > count(roof) THEN 'tensor'
            WHEN count(roof) > 0 THEN 'dram'
        END AS roof,
        100.0 * ordered_sum(roof_ns) / nullif(sum(time_ns) FILTER (roof_ns IS NOT NULL), 0) AS roof_pct,
        min(roof_missing) AS roof_missing,
        string_agg(DISTINCT evidence, ', ' ORDER BY evidence) AS evidence
    FROM parts
    GROUP BY ALL
)
SELECT
    report_id,
    load_id,
    rate,
    device,
    class,
    iterations,
    time_ns,
    100.0 * time_ns / sum(time_ns) OVER (PARTITION BY report_id) AS share_pct,
    p50_ms,
    p95_ms,
    100.0 * (kernels_ns + copies_ns) / time_ns AS busy_pct,
    100.0 * kernels_ns / time_ns AS kernels_pct,
    100.0 * copies_ns / time_ns AS copies_pct,
    100.0 * gaps_ns / time_ns AS gaps_pct,
    100.0 * host_ns / time_ns AS host_pct,
    batch_p50,
    batch_max,
    tokens_p50,
    roof,
    roof_pct,
    CASE WHEN roof_pct IS NULL AND class NOT IN ('between', 'empty') THEN roof_missing END AS missing,
    evidence
FROM sums
ORDER BY rate, report_id,
    list_position(['prefill', 'decode', 'mixed', 'unknown', 'between', 'empty'], class);
