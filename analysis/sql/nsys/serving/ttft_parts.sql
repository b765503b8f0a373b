-- Parts of the time to first token (TTFT) of each request, from the time at which it was planned until its
-- first token arrived, on the captured timeline. The parts add up to ttft_ms: time in the client, behind
-- iterations that compute nothing of the request, in the iterations that compute its prompt, and on the host
-- (from the client to the engine, between iterations, and back). Only requests whose prefill is known and
-- that began after the first iteration in the window.
--
-- report_id VARCHAR: report of the timeline
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- request_id BIGINT: request
-- ttft_ms DOUBLE: time to first token, ms
-- client_ms DOUBLE: from the planned time until it was sent, ms
-- decode_ms DOUBLE: behind decode iterations, ms
-- others_ms DOUBLE: behind prefill and mixed iterations of other requests, ms
-- unknown_ms DOUBLE: behind iterations of unknown class, ms
-- prefill_ms DOUBLE: in its own prefill, mixed iterations included, ms. A prompt that is computed in several
--   iterations has all of them only if names show the number of tokens; otherwise the last
-- host_ms DOUBLE: the rest, ms
-- prefills BIGINT: number of iterations of its own prefill
-- batch BIGINT: number of requests whose prompt the last of them computes; NULL if unknown
-- roof VARCHAR: the lower roof of its prefill, dram or tensor; NULL if unknown
-- roof_pct DOUBLE: time at the roof, % of the time of these iterations; NULL if unknown
CREATE VIEW ttft_parts AS
WITH windows AS (
    SELECT report_id, min(start_ns) AS start_ns
    FROM serving_iterations
    GROUP BY report_id
),
requests AS (
    SELECT r.*
    FROM _engine_requests AS r
    JOIN windows AS w USING (report_id)
    WHERE r.prefill IS NOT NULL AND r.start_ns >= w.start_ns
),
-- Later iterations of a prompt first: how many of its tokens are computed then.
prompts AS (
    SELECT
        r.report_id,
        r.request_id,
        i.iteration,
        i.iteration = r.prefill AS is_last,
        r.input_tokens,
        sum(i.prefill_tokens) OVER (
            PARTITION BY r.report_id, r.request_id ORDER BY i.iteration DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS computed
    FROM requests AS r
    JOIN serving_iterations AS i
        ON i.report_id = r.report_id AND i.start_ns >= r.sent_ns AND i.iteration <= r.prefill
    WHERE i.class IN ('prefill', 'mixed')
),
own AS (
    SELECT report_id, request_id, iteration
    FROM prompts
    WHERE is_last OR computed < input_tokens
),
met AS (
    SELECT
        r.report_id,
        r.request_id,
        i.class,
        o.iteration IS NOT NULL OR i.iteration = r.prefill AS is_own,
        i.time_ns,
        i.prefills,
        i.roof,
        i.roof_ns,
        i.iteration = r.prefill AS is_last,
        overlap_ns(i.start_ns, i.end_ns, r.sent_ns, r.first_token_ns) AS behind_ns
    FROM requests AS r
    JOIN serving_iterations AS i
        ON i.report_id = r.report_id AND i.start_ns < r.first_token_ns AND i.end_ns > r.sent_ns
    LEFT JOIN own AS o
        ON o.report_id = r.report_id AND o.request_id = r.request_id AND o.iteration = i.iteration
),
sums AS (
    SELECT
        report_id,
        request_id,
        coalesce(sum(behind_ns) FILTER (is_own), 0) AS own_ns,
        coalesce(sum(behind_ns) FILTER (NOT is_own AND class = 'decode'), 0) AS decode_ns,
        coalesce(sum(behind_ns) FILTER (NOT is_own AND class IN ('prefill', 'mixed')), 0) AS others_ns,
        coalesce(sum(behind_ns) FILTER (NOT is_own AND class = 'unknown'), 0) AS unknown_ns,
        sum(behind_ns) AS behind_ns,
        count(*) FILTER (is_own) AS prefills,
        max(prefills) FILTER (is_last) AS batch,
        any_value(roof) FILTER (is_last) AS roof,
        100.0 * ordered_sum(if(is_own, roof_ns, NULL))
            / nullif(sum(time_ns) FILTER (is_own AND roof_ns IS NOT NULL), 0) AS roof_pct
    FROM met
    GROUP BY report_id, request_id
)
SELECT
    r.report_id,
    r.load_id,
    r.rate,
    r.request_id,
    (r.first_token_ns - r.start_ns) / 1e6 AS ttft_ms,
    (r.sent_ns - r.start_ns) / 1e6 AS client_ms,
    s.decode_ns / 1e6 AS decode_ms,
    s.others_ns / 1e6 AS others_ms,
    s.unknown_ns / 1e6 AS unknown_ms,
    s.own_ns / 1e6 AS prefill_ms,
    (r.first_token_ns - r.sent_ns - s.behind_ns) / 1e6 AS host_ms,
    s.prefills,
    s.batch,
    s.roof,
    s.roof_pct
FROM requests AS r
JOIN sums AS s USING (report_id, request_id)
ORDER BY r.report_id, r.request_id;
