-- Where the time to first token (TTFT) of typical and of slow requests goes: the mean of the parts (see
-- ttft_parts) of the requests around a percentile, and of the slowest request. They are requests of the
-- captured window, whose latencies include the overhead of the profiler.
--
-- report_id VARCHAR: report of the timeline
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- around VARCHAR: p50, p95 (with up to 2 requests on each side: threshold serving.around; only if there are
--   as many requests as serving_latencies needs for it), or slowest
-- of BIGINT: number of requests with known parts
-- requests BIGINT: number of requests around the percentile
-- ttft_ms DOUBLE: their mean time to first token, ms; the sum of the parts
-- client_ms DOUBLE: mean time in the client, ms
-- decode_ms DOUBLE: mean time behind decode iterations, ms
-- others_ms DOUBLE: mean time behind prefill and mixed iterations of other requests, ms
-- unknown_ms DOUBLE: mean time behind iterations of unknown class, ms
-- prefill_ms DOUBLE: mean time in their own prefill, ms
-- host_ms DOUBLE: mean time on the host, ms
-- roof VARCHAR: the lower roof of most of their prefills, dram or tensor; NULL if unknown
-- roof_pct DOUBLE: mean time at the roof, % of the prefill; NULL if unknown
-- request_id BIGINT: the request, if it is one
CREATE VIEW ttft_around AS
WITH ranked AS (
    SELECT *,
        row_number() OVER (PARTITION BY report_id ORDER BY ttft_ms, request_id) AS place,
        count(*) OVER (PARTITION BY report_id) AS requests
    FROM ttft_parts
),
levels AS (
    SELECT unnest([
        {around: 'p50', level: 0.5, least: threshold('serving.least_p50')},
        {around: 'p95', level: 0.95, least: threshold('serving.least_p95')},
        {around: 'slowest', level: 1.0, least: 1.0}
    ], recursive := true)
),
chosen AS (
    SELECT r.*, l.around
    FROM ranked AS r
    JOIN levels AS l
        ON r.requests >= l.least
            AND abs(r.place - ceil(l.level * r.requests))
            <= if(l.around = 'slowest', 0, threshold('serving.around'))
)
SELECT
    report_id,
    load_id,
    rate,
    around,
    any_value(requests) AS of,
    count(*) AS requests,
    ordered_sum(ttft_ms) / count(*) AS ttft_ms,
    ordered_sum(client_ms) / count(*) AS client_ms,
    ordered_sum(decode_ms) / count(*) AS decode_ms,
    ordered_sum(others_ms) / count(*) AS others_ms,
    ordered_sum(unknown_ms) / count(*) AS unknown_ms,
    ordered_sum(prefill_ms) / count(*) AS prefill_ms,
    ordered_sum(host_ms) / count(*) AS host_ms,
    CASE
        WHEN 2 * count(*) FILTER (roof = 'tensor') > count(roof) THEN 'tensor'
        WHEN count(roof) > 0 THEN 'dram'
    END AS roof,
    ordered_sum(roof_pct) / nullif(count(roof_pct), 0) AS roof_pct,
    CASE WHEN count(*) = 1 THEN any_value(request_id) END AS request_id
FROM chosen
GROUP BY report_id, load_id, rate, around
ORDER BY rate, report_id, list_position(['p50', 'p95', 'slowest'], around);
