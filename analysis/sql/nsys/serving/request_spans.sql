-- Requests on a timeline. Their times on the clock of a timeline that was captured while the server was under
-- load, such as launches.start_ns. Both clocks are UTC. Only requests that were in progress during the
-- captured window.
--
-- report_id VARCHAR: report of the timeline
-- requests_report_id VARCHAR: report with the requests
-- request_id BIGINT: request
-- load_id BIGINT: load
-- rate DOUBLE: arrival rate of the load, requests/s
-- start_ns BIGINT: time at which the request was planned, ns
-- sent_ns BIGINT: time at which the request was sent, ns
-- first_token_ns BIGINT: arrival of its first token, ns; NULL if the response was not streamed
-- last_token_ns BIGINT: arrival of its last token, ns; NULL if unknown
-- end_ns BIGINT: end of its response, ns
-- input_tokens BIGINT: tokens of the prompt
-- output_tokens BIGINT: tokens of the response
-- reason VARCHAR: why it failed; NULL if it succeeded
CREATE VIEW request_spans AS
SELECT
    l.report_id,
    q.report_id AS requests_report_id,
    q.request_id,
    q.load_id,
    q.rate,
    coalesce(q.planned_ns, q.sent_ns) - l.origin_ns AS start_ns,
    q.sent_ns - l.origin_ns AS sent_ns,
    q.first_token_ns - l.origin_ns AS first_token_ns,
    q.last_token_ns - l.origin_ns AS last_token_ns,
    q.end_ns - l.origin_ns AS end_ns,
    q.input_tokens,
    q.output_tokens,
    q.reason
FROM _captured_loads AS l
JOIN requests AS q ON q.report_id = l.requests_report_id AND q.load_id = l.load_id
JOIN _request_times AS m ON m.report_id = q.report_id AND m.request_id = q.request_id
WHERE l.clock = 'utc' AND l.origin_ns IS NOT NULL AND m.captured
ORDER BY l.report_id, start_ns, q.request_id;
