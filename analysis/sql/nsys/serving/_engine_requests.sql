-- Requests on a captured timeline, with the iteration that computed the last part of their prompt: the last
-- one whose name shows a prompt, up to the first token; without such names, the one that the first token came
-- from. NULL if it began before the request was sent, or is not in the window.
-- @materialize
CREATE VIEW _engine_requests AS
WITH named AS (
    SELECT report_id, bool_or(said.class IS NOT NULL) AS named
    FROM _engine_iterations
    GROUP BY report_id
),
firsts AS (
    SELECT t.report_id, t.request_id, t.iteration, n.named
    FROM _engine_tokens AS t
    JOIN named AS n USING (report_id)
    WHERE t.position = 0
),
prefills AS (
    SELECT f.report_id, f.request_id, if(f.named, p.iteration, f.iteration) AS iteration
    FROM firsts AS f
    ASOF LEFT JOIN (FROM _engine_iterations WHERE said.class IN ('prefill', 'mixed')) AS p
        ON p.report_id = f.report_id AND p.iteration <= f.iteration
)
SELECT
    c.report_id,
    c.load_id,
    c.rate,
    s.request_id,
    s.start_ns,
    s.sent_ns,
    s.first_token_ns,
    s.end_ns,
    s.input_tokens,
    s.output_tokens,
    s.reason,
    i.iteration AS prefill
FROM request_spans AS s
JOIN _served_captures AS c USING (report_id, requests_report_id, load_id)
LEFT JOIN prefills AS p USING (report_id, request_id)
LEFT JOIN _engine_iterations AS i
    ON i.report_id = p.report_id AND i.iteration = p.iteration AND i.host_start_ns >= s.sent_ns;
