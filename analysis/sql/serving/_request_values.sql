-- Latencies of requests that succeeded, one row per value: of each request, or for itl of each pair of
-- successive pieces of its response.
CREATE VIEW _request_values AS
WITH gaps AS (
    SELECT
        report_id,
        request_id,
        (time_ns - lag(time_ns) OVER (PARTITION BY report_id, request_id ORDER BY position)) / 1e6 AS ms
    FROM request_tokens
)
SELECT t.report_id, t.load_id, t.request_id, t.captured, m.metric, m.ms
FROM _request_times AS t,
    LATERAL (
        VALUES ('ttft', t.ttft_ms), ('tpot', t.tpot_ms), ('e2e', t.e2e_ms), ('client_wait', t.client_wait_ms)
    ) AS m (metric, ms)
WHERE t.succeeded AND m.ms IS NOT NULL
UNION ALL
SELECT t.report_id, t.load_id, t.request_id, t.captured, 'itl' AS metric, g.ms
FROM gaps AS g
JOIN _request_times AS t USING (report_id, request_id)
WHERE t.succeeded AND g.ms IS NOT NULL;
