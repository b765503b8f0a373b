-- Tokens that arrived at the client, with the iteration that computed them: the one whose end is nearest to
-- the arrival less a delay that all tokens share. The delay is the median time since the last iteration that
-- had ended, or since one of the seven before it: whichever fits the ends of iterations best. Where the load
-- has no times of tokens, the first and the last token of each response.
-- @materialize
CREATE VIEW _engine_tokens AS
WITH spans AS (
    SELECT s.*
    FROM request_spans AS s
    SEMI JOIN _served_captures USING (report_id, requests_report_id, load_id)
    WHERE s.first_token_ns IS NOT NULL
),
timed AS (
    SELECT s.report_id, s.request_id, t.position, t.time_ns - r.started_ns AS time_ns
    FROM spans AS s
    JOIN reports AS r ON r.report_id = s.report_id
    JOIN request_tokens AS t ON t.report_id = s.requests_report_id AND t.request_id = s.request_id
),
ends AS (
    SELECT report_id, request_id, 0 AS position, first_token_ns AS time_ns
    FROM spans
    ANTI JOIN timed USING (report_id, request_id)
    UNION ALL
    SELECT report_id, request_id, NULL, last_token_ns
    FROM spans
    ANTI JOIN timed USING (report_id, request_id)
    WHERE last_token_ns > first_token_ns
),
spaced AS (
    SELECT report_id, iteration, host_start_ns, gpu_end_ns, gpu_end_ns - lag(gpu_end_ns) OVER w AS since_ns
    FROM _engine_iterations
    WINDOW w AS (PARTITION BY report_id ORDER BY iteration)
),
iterations AS (
    SELECT
        report_id,
        iteration,
        gpu_end_ns,
        coalesce(gpu_end_ns - since_ns // 2, host_start_ns) AS nearest_ns,
        max(gpu_end_ns) OVER of_report AS last_ns,
        last_ns + coalesce(min(since_ns) OVER of_report // 2, 0) AS until_ns,
        list(gpu_end_ns) OVER (
            PARTITION BY report_id ORDER BY iteration ROWS BETWEEN 7 PRECEDING AND CURRENT ROW
        ) AS ends_ns
    FROM spaced
    WINDOW of_report AS (PARTITION BY report_id)
),
arrived AS (
    FROM timed
    UNION ALL
    FROM ends
),
delays AS (
    SELECT report_id, ended, quantile_disc(delay_ns, 0.5) AS delay_ns
    FROM (
        SELECT a.report_id, unnest(range(len(i.ends_ns))) AS ended,
            a.time_ns - i.ends_ns[len(i.ends_ns) - ended] AS delay_ns
        FROM arrived AS a
        ASOF JOIN iterations AS i ON i.report_id = a.report_id AND i.gpu_end_ns <= a.time_ns
        -- Later tokens are from iterations after the window.
        QUALIFY a.time_ns <= i.last_ns OR NOT bool_or(a.time_ns <= i.last_ns) OVER (PARTITION BY a.report_id)
    )
    GROUP BY report_id, ended
),
placed AS (
    SELECT
        a.report_id, a.request_id, a.position, a.time_ns, a.ended, i.iteration,
        abs(a.time_ns - a.delay_ns - i.gpu_end_ns) AS off_ns
    FROM (
        SELECT a.*, d.ended, d.delay_ns, a.time_ns - d.delay_ns AS computed_ns
        FROM arrived AS a
        JOIN delays AS d USING (report_id)
    ) AS a
    ASOF JOIN iterations AS i ON i.report_id = a.report_id AND i.nearest_ns <= a.computed_ns
    WHERE a.computed_ns <= i.until_ns
),
chosen AS (
    SELECT report_id, ended
    FROM placed
    GROUP BY report_id, ended
    QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY sum(off_ns) / count(*), ended) = 1
)
SELECT p.report_id, p.request_id, p.position, p.time_ns, p.iteration
FROM placed AS p
SEMI JOIN chosen USING (report_id, ended);
