-- Latency against rate. What a server did under each load; rates of success are over the time from the start
-- of the load to the end of its last request. A server is saturated if requests arrive faster than they are
-- answered: latencies, or the number of requests in progress, then grow during the load.
--
-- report_id VARCHAR: report with the requests
-- load_id BIGINT: load
-- phase VARCHAR: plain (without a profiler), or the profiler under which the server ran
-- rate DOUBLE: arrival rate that was asked for, requests/s; NULL if the load was not limited to a rate
-- arrivals VARCHAR: poisson or constant (open loop), closed, or unknown
-- generator VARCHAR: load generator
-- requests BIGINT: number of requests
-- failed BIGINT: number of requests that failed: connection errors, timeouts, HTTP errors, canceled requests
-- error_pct DOUBLE: failed requests, % of all
-- errors VARCHAR: the most frequent reason of a failure; NULL if none failed
-- duration_s DOUBLE: time from the start of the load to the end of its last request, s
-- requests_per_s DOUBLE: successful requests per second
-- output_tokens_per_s DOUBLE: output tokens of successful requests per second; NULL if they are unknown
-- ttft_p50_ms DOUBLE: median time to first token, ms; reasons for NULL: serving_latencies.missing
-- ttft_p95_ms DOUBLE: 95th percentile of it, ms
-- ttft_p99_ms DOUBLE: 99th percentile of it, ms
-- tpot_p50_ms DOUBLE: median time per output token after the first, ms
-- tpot_p95_ms DOUBLE: 95th percentile of it, ms
-- tpot_p99_ms DOUBLE: 99th percentile of it, ms
-- itl_p50_ms DOUBLE: median time between two pieces of a response, ms
-- itl_p95_ms DOUBLE: 95th percentile of it, ms
-- itl_p99_ms DOUBLE: 99th percentile of it, ms
-- e2e_p50_ms DOUBLE: median end-to-end latency, ms
-- e2e_p95_ms DOUBLE: 95th percentile of it, ms
-- e2e_p99_ms DOUBLE: 99th percentile of it, ms
-- slo VARCHAR: objectives of the requests; NULL without objectives
-- good_per_s DOUBLE: goodput: requests that met all objectives, per second; NULL without objectives
-- good_pct DOUBLE: these requests, % of all, failed ones included
-- client_wait_max_ms DOUBLE: longest time that a request waited in the client, ms; part of the latencies
-- arrivals_per_s DOUBLE: requests per second that arrived, between the first and the last; NULL below 2
-- completions_per_s DOUBLE: responses per second that ended, between the first and the last; NULL below 2
-- latency_growth DOUBLE: growth of the end-to-end latency during the load, s per s (slope of a regression
--   over requests that succeeded or timed out)
-- backlog_pct DOUBLE: growth of the number of requests in progress in the second half of the arrivals, % of
--   these arrivals
-- saturated BOOLEAN: whether latency_growth or backlog_pct exceeds the threshold serving.growth, and its own
--   noise; NULL if unknown
-- saturated_missing VARCHAR: why saturated is NULL
-- ended_by VARCHAR: why the load ended early; NULL if it ran to its end
CREATE VIEW serving_rates AS
WITH counted AS (
    SELECT
        report_id,
        load_id,
        count(*) AS requests,
        count(*) FILTER (NOT succeeded) AS failed,
        count(*) FILTER (succeeded) AS succeeded,
        count(*) FILTER (good) AS good,
        count(output_tokens) FILTER (succeeded) AS known_tokens,
        sum(output_tokens) FILTER (succeeded)::BIGINT AS output_tokens,
        count(ttft_ms) FILTER (succeeded) AS known_ttft,
        count(tpot_ms) FILTER (succeeded) AS known_tpot,
        max(client_wait_ms) AS client_wait_max_ms,
        (count(begin_ns) - 1) / nullif((max(begin_ns) - min(begin_ns)) / 1e9, 0) AS arrivals_per_s,
        (count(end_ns) FILTER (succeeded) - 1)
            / nullif((max(end_ns) FILTER (succeeded) - min(end_ns) FILTER (succeeded)) / 1e9, 0)
            AS completions_per_s
    FROM _request_times
    GROUP BY report_id, load_id
),
reasons AS (
    SELECT report_id, load_id, reason, count(*) AS requests
    FROM requests
    WHERE reason IS NOT NULL
    GROUP BY report_id, load_id, reason
    QUALIFY row_number() OVER (PARTITION BY report_id, load_id ORDER BY count(*) DESC, reason) = 1
),
percentiles AS (
    SELECT report_id, load_id, metric, p50_ms, p95_ms, p99_ms
    FROM serving_latencies
),
wide AS (
    SELECT
        l.*,
        c.* EXCLUDE (report_id, load_id),
        (l.ended_ns - l.started_ns) / 1e9 AS duration_s,
        l.slo_ttft_ms IS NOT NULL OR l.slo_tpot_ms IS NOT NULL OR l.slo_e2e_ms IS NOT NULL AS judged,
        (l.slo_ttft_ms IS NULL OR c.known_ttft > 0) AND (l.slo_tpot_ms IS NULL OR c.known_tokens > 0) AS known
    FROM request_loads AS l
    LEFT JOIN counted AS c ON c.report_id = l.report_id AND c.load_id = l.load_id
)
SELECT
    w.report_id,
    w.load_id,
    w.phase,
    w.rate,
    w.arrivals,
    w.generator,
    coalesce(w.requests, 0) AS requests,
    coalesce(w.failed, 0) AS failed,
    100.0 * w.failed / w.requests AS error_pct,
    CASE WHEN r.requests < w.failed THEN printf('%s (%d of %d)', r.reason, r.requests, w.failed) ELSE r.reason
    END AS errors,
    w.duration_s,
    w.succeeded / nullif(w.duration_s, 0) AS requests_per_s,
    CASE WHEN w.known_tokens = w.succeeded AND w.succeeded > 0 THEN w.output_tokens END
        / nullif(w.duration_s, 0) AS output_tokens_per_s,
    ttft.p50_ms AS ttft_p50_ms,
    ttft.p95_ms AS ttft_p95_ms,
    ttft.p99_ms AS ttft_p99_ms,
    tpot.p50_ms AS tpot_p50_ms,
    tpot.p95_ms AS tpot_p95_ms,
    tpot.p99_ms AS tpot_p99_ms,
    itl.p50_ms AS itl_p50_ms,
    itl.p95_ms AS itl_p95_ms,
    itl.p99_ms AS itl_p99_ms,
    e2e.p50_ms AS e2e_p50_ms,
    e2e.p95_ms AS e2e_p95_ms,
    e2e.p99_ms AS e2e_p99_ms,
    nullif(
        concat_ws(
            ', ',
            CASE WHEN w.slo_ttft_ms IS NOT NULL THEN printf('TTFT %g ms', w.slo_ttft_ms) END,
            CASE WHEN w.slo_tpot_ms IS NOT NULL THEN printf('TPOT %g ms', w.slo_tpot_ms) END,
            CASE WHEN w.slo_e2e_ms IS NOT NULL THEN printf('end to end %g ms', w.slo_e2e_ms) END
        ), ''
    ) AS slo,
    CASE WHEN w.judged AND w.known THEN w.good / nullif(w.duration_s, 0) END AS good_per_s,
    CASE WHEN w.judged AND w.known THEN 100.0 * w.good / w.requests END AS good_pct,
    w.client_wait_max_ms,
    w.arrivals_per_s,
    w.completions_per_s,
    g.latency_growth,
    g.backlog_pct,
    CASE
        WHEN w.arrivals = 'closed' OR coalesce(g.points, 0) < threshold('serving.least_growth') THEN NULL
        WHEN coalesce(g.slower, false) THEN true
        WHEN NOT g.brief THEN coalesce(g.fuller, false)
    END AS saturated,
    CASE
        WHEN saturated IS NOT NULL THEN NULL
        WHEN w.arrivals = 'closed' THEN 'requests wait for responses in a closed loop'
        WHEN coalesce(g.points, 0) < threshold('serving.least_growth')
            THEN printf('%d of the %.0f responses that it needs', coalesce(g.points, 0),
                threshold('serving.least_growth'))
        ELSE 'requests arrive for less than twice the median latency'
    END AS saturated_missing,
    w.ended_by
FROM wide AS w
LEFT JOIN reasons AS r ON r.report_id = w.report_id AND r.load_id = w.load_id
LEFT JOIN _saturation AS g ON g.report_id = w.report_id AND g.load_id = w.load_id
LEFT JOIN percentiles AS ttft
    ON ttft.report_id = w.report_id AND ttft.load_id = w.load_id AND ttft.metric = 'ttft'
LEFT JOIN percentiles AS tpot
    ON tpot.report_id = w.report_id AND tpot.load_id = w.load_id AND tpot.metric = 'tpot'
LEFT JOIN percentiles AS itl
    ON itl.report_id = w.report_id AND itl.load_id = w.load_id AND itl.metric = 'itl'
LEFT JOIN percentiles AS e2e
    ON e2e.report_id = w.report_id AND e2e.load_id = w.load_id AND e2e.metric = 'e2e'
ORDER BY w.report_id, w.load_id;
