-- Profiler overhead of a server. Median latencies of the requests during the captured window are compared
-- with those at the same rate without a profiler.
--
-- report_id VARCHAR: report with the requests
-- rate DOUBLE: arrival rate that was asked for, requests/s
-- profiler VARCHAR: profiler under which the server ran
-- metric VARCHAR: ttft, tpot, itl or e2e, as in serving_latencies
-- plain_ms DOUBLE: median without a profiler, ms
-- traced_ms DOUBLE: median of the requests that were in progress during the captured window, ms
-- overhead_pct DOUBLE: difference, % of plain_ms
-- plain_samples BIGINT: number of values without a profiler
-- traced_samples BIGINT: number of values under the profiler
-- missing VARCHAR: why overhead_pct is NULL
CREATE VIEW serving_overhead AS
WITH medians AS (
    SELECT
        l.report_id, l.load_id, l.phase, l.rate, v.metric,
        count(*) AS samples,
        quantile_cont(v.ms, 0.5) AS ms
    FROM _request_values AS v
    JOIN request_loads AS l USING (report_id, load_id)
    WHERE v.metric != 'client_wait' AND (l.phase = 'plain' OR v.captured)
    GROUP BY l.report_id, l.load_id, l.phase, l.rate, v.metric
),
pairs AS (
    SELECT
        t.report_id,
        t.rate,
        t.phase,
        k.metric,
        min(p.load_id) AS plain_id,
        min(t.load_id) AS traced_id
    FROM request_loads AS t
    JOIN request_loads AS p
        ON p.report_id = t.report_id AND p.rate IS NOT DISTINCT FROM t.rate AND p.phase = 'plain'
    CROSS JOIN (SELECT unnest(['ttft', 'tpot', 'itl', 'e2e']) AS metric) AS k
    WHERE t.phase != 'plain' AND t.window_start_ns IS NOT NULL
    GROUP BY t.report_id, t.rate, t.phase, k.metric
),
found AS (
    SELECT
        q.*,
        coalesce(p.samples, 0) AS plain_samples,
        coalesce(t.samples, 0) AS traced_samples,
        CASE WHEN p.samples >= threshold('serving.least_p50') THEN p.ms END AS plain_ms,
        CASE WHEN t.samples >= threshold('serving.least_p50') THEN t.ms END AS traced_ms
    FROM pairs AS q
    LEFT JOIN medians AS p ON p.report_id = q.report_id AND p.load_id = q.plain_id AND p.metric = q.metric
    LEFT JOIN medians AS t ON t.report_id = q.report_id AND t.load_id = q.traced_id AND t.metric = q.metric
)
SELECT
    report_id,
    rate,
    phase AS profiler,
    metric,
    plain_ms,
    traced_ms,
    100 * (traced_ms / nullif(plain_ms, 0) - 1) AS overhead_pct,
    plain_samples,
    traced_samples,
    CASE
        WHEN plain_ms IS NULL OR traced_ms IS NULL
            THEN printf(
                '%d values without a profiler and %d in the captured window; a median needs %.0f',
                plain_samples, traced_samples, threshold('serving.least_p50')
            )
        WHEN plain_ms = 0 THEN 'the latency without a profiler is 0'
    END AS missing
FROM found
ORDER BY report_id, rate, profiler, list_position(['ttft', 'tpot', 'itl', 'e2e'], metric);
