-- Times of each request, ms: from the time at which it was planned, so that time in the client's queue
-- counts; from the time at which it was sent, if the generator states no plan. `good` says whether it met the
-- objectives of its load: a request without a second output token has no time per output token to meet.
CREATE VIEW _request_times AS
WITH timed AS (
    SELECT
        r.report_id,
        r.load_id,
        r.request_id,
        coalesce(r.planned_ns, r.sent_ns) AS begin_ns,
        r.end_ns,
        r.output_tokens,
        r.reason IS NULL AS succeeded,
        starts_with(r.reason, 'timeout') AS timed_out,
        (r.first_token_ns - coalesce(r.planned_ns, r.sent_ns)) / 1e6 AS ttft_ms,
        CASE
            WHEN r.output_tokens > 1
                THEN (coalesce(r.last_token_ns, r.end_ns) - r.first_token_ns) / 1e6 / (r.output_tokens - 1)
        END AS tpot_ms,
        (r.end_ns - coalesce(r.planned_ns, r.sent_ns)) / 1e6 AS e2e_ms,
        (r.sent_ns - r.planned_ns) / 1e6 AS client_wait_ms,
        coalesce(r.planned_ns, r.sent_ns) < l.window_end_ns AND r.end_ns > l.window_start_ns AS captured,
        l.slo_ttft_ms,
        l.slo_tpot_ms,
        l.slo_e2e_ms
    FROM requests AS r
    JOIN request_loads AS l USING (report_id, load_id)
)
SELECT
    * EXCLUDE (slo_ttft_ms, slo_tpot_ms, slo_e2e_ms),
    succeeded
        AND (slo_ttft_ms IS NULL OR coalesce(ttft_ms <= slo_ttft_ms, false))
        AND (slo_tpot_ms IS NULL OR output_tokens <= 1 OR coalesce(tpot_ms <= slo_tpot_ms, false))
        AND (slo_e2e_ms IS NULL OR coalesce(e2e_ms <= slo_e2e_ms, false)) AS good
FROM timed;
