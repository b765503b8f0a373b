-- Latencies of each load. Times count from the time at which a request was planned, so that
-- a server that falls behind cannot slow its own measurement. A percentile is NULL if it rests on too few
-- values: the largest of n values exceeds the percentile q with a confidence of 95 % from
-- n = ln(0.05) / ln(q) on (thresholds serving.least_p50, least_p95, least_p99).
--
-- report_id VARCHAR: report with the requests
-- load_id BIGINT: load
-- phase VARCHAR: plain (without a profiler), or the profiler under which the server ran
-- rate DOUBLE: arrival rate that was asked for, requests/s
-- metric VARCHAR: ttft (time to first token), tpot (time per output token after the first), itl (time between
--   two pieces of a response), e2e (end to end) or client_wait (from the planned time until it was sent)
-- requests BIGINT: number of successful requests with a value
-- samples BIGINT: number of values: one per request, or for itl one per pair of successive pieces
-- mean_ms DOUBLE: mean, ms
-- p50_ms DOUBLE: median, ms
-- p95_ms DOUBLE: 95th percentile, ms, interpolated linearly between values
-- p99_ms DOUBLE: 99th percentile, ms
-- max_ms DOUBLE: largest value, ms
-- missing VARCHAR: why a value is NULL; NULL if none is
CREATE VIEW serving_latencies AS
WITH measured AS (
    SELECT
        report_id,
        load_id,
        metric,
        count(DISTINCT request_id) AS requests,
        count(*) AS samples,
        ordered_sum(ms) / count(*) AS mean_ms,
        quantile_cont(ms, 0.5) AS p50_ms,
        quantile_cont(ms, 0.95) AS p95_ms,
        quantile_cont(ms, 0.99) AS p99_ms,
        max(ms) AS max_ms
    FROM _request_values
    GROUP BY report_id, load_id, metric
),
tried AS (
    SELECT
        report_id,
        load_id,
        count(*) FILTER (succeeded) AS succeeded,
        count(output_tokens) FILTER (succeeded) AS counted,
        count(ttft_ms) FILTER (succeeded) AS streamed
    FROM _request_times
    GROUP BY report_id, load_id
)
SELECT
    l.report_id,
    l.load_id,
    l.phase,
    l.rate,
    k.metric,
    coalesce(m.requests, 0) AS requests,
    coalesce(m.samples, 0) AS samples,
    m.mean_ms,
    CASE WHEN m.samples >= threshold('serving.least_p50') THEN m.p50_ms END AS p50_ms,
    CASE WHEN m.samples >= threshold('serving.least_p95') THEN m.p95_ms END AS p95_ms,
    CASE WHEN m.samples >= threshold('serving.least_p99') THEN m.p99_ms END AS p99_ms,
    m.max_ms,
    CASE
        WHEN coalesce(t.succeeded, 0) = 0 THEN 'no request succeeded'
        WHEN m.samples IS NULL AND k.metric = 'client_wait' THEN 'the generator states no planned times'
        WHEN m.samples IS NULL AND k.metric = 'e2e' THEN 'the generator states no end of the requests'
        WHEN m.samples IS NULL AND t.streamed = 0 THEN 'the responses were not streamed'
        WHEN m.samples IS NULL AND k.metric = 'tpot' AND t.counted = 0
            THEN 'the number of output tokens is unknown'
        WHEN m.samples IS NULL AND k.metric = 'tpot' THEN 'no response has a second token'
        WHEN m.samples IS NULL THEN 'the arrival times of tokens are unknown'
        WHEN m.samples < threshold('serving.least_p50')
            THEN printf('%d of the %.0f values that p50 needs', m.samples, threshold('serving.least_p50'))
        WHEN m.samples < threshold('serving.least_p95')
            THEN printf('%d of the %.0f values that p95 needs', m.samples, threshold('serving.least_p95'))
        WHEN m.samples < threshold('serving.least_p99')
            THEN printf('%d of the %.0f values that p99 needs', m.samples, threshold('serving.least_p99'))
    END AS missing
FROM request_loads AS l
CROSS JOIN (SELECT unnest(['ttft', 'tpot', 'itl', 'e2e', 'client_wait']) AS metric) AS k
LEFT JOIN tried AS t ON t.report_id = l.report_id AND t.load_id = l.load_id
LEFT JOIN measured AS m ON m.report_id = l.report_id AND m.load_id = l.load_id AND m.metric = k.metric
ORDER BY l.report_id, l.load_id, list_position(['ttft', 'tpot', 'itl', 'e2e', 'client_wait'], k.metric);
