-- The request with the longest time to first token in the captured window of each load, from when it was
-- planned until its first token arrived: its phases, and the iterations of the engine meanwhile. Successive
-- iterations of one class are one row.
--
-- report_id VARCHAR: report of the timeline
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- request_id BIGINT: request
-- lane VARCHAR: request or engine
-- part VARCHAR: phase of the request (client, queue, prefill, response), or class of the iterations; own for
--   iterations that compute the request's prompt
-- iterations BIGINT: number of iterations; NULL for phases
-- from_ms DOUBLE: start, ms since the request was planned
-- time_ms DOUBLE: time from the start to the end, ms; of iterations including the time between them
CREATE VIEW slowest_request AS
WITH chosen AS (
    SELECT r.*
    FROM ttft_around AS a
    JOIN _engine_requests AS r USING (report_id, request_id)
    WHERE a.around = 'slowest'
),
met AS (
    SELECT
        c.report_id,
        c.load_id,
        c.rate,
        c.request_id,
        c.start_ns AS origin_ns,
        i.iteration,
        if(i.iteration = c.prefill, 'own', i.class) AS part,
        greatest(i.start_ns, c.start_ns) AS start_ns,
        least(i.end_ns, c.first_token_ns) AS end_ns
    FROM chosen AS c
    JOIN serving_iterations AS i
        ON i.report_id = c.report_id AND i.start_ns < c.first_token_ns AND i.end_ns > c.start_ns
),
runs AS (
    SELECT *, iteration - row_number() OVER (PARTITION BY report_id, part ORDER BY iteration) AS run
    FROM met
),
rows AS (
    SELECT c.report_id, c.load_id, c.rate, c.request_id, 'request' AS lane, p.part,
        NULL::BIGINT AS iterations, c.start_ns AS origin_ns, p.start_ns, p.end_ns
    FROM chosen AS c
    JOIN serving_iterations AS i ON i.report_id = c.report_id AND i.iteration = c.prefill
    CROSS JOIN LATERAL (
        SELECT unnest([
            {part: 'client', start_ns: c.start_ns, end_ns: c.sent_ns},
            {part: 'queue', start_ns: c.sent_ns, end_ns: i.start_ns},
            {part: 'prefill', start_ns: i.start_ns, end_ns: i.end_ns},
            {part: 'response', start_ns: i.end_ns, end_ns: c.first_token_ns}
        ], recursive := true)
    ) AS p
    UNION ALL BY NAME
    SELECT report_id, load_id, rate, request_id, 'engine' AS lane, part, count(*) AS iterations, origin_ns,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM runs
    GROUP BY report_id, load_id, rate, request_id, part, run, origin_ns
)
SELECT
    report_id,
    load_id,
    rate,
    request_id,
    lane,
    part,
    iterations,
    (start_ns - origin_ns) / 1e6 AS from_ms,
    greatest(0, end_ns - start_ns) / 1e6 AS time_ms
FROM rows
ORDER BY report_id, lane DESC, from_ms, part;
