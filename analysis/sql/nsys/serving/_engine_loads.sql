-- Times in which an engine has requests, from when the first one was sent until the last response ended, as
-- intervals on the clock of the timeline.
-- @materialize
CREATE VIEW _engine_loads AS
WITH ordered AS (
    SELECT report_id, sent_ns, end_ns, max(end_ns) OVER (
        PARTITION BY report_id ORDER BY sent_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached_ns
    FROM request_spans
    SEMI JOIN _served_captures USING (report_id, requests_report_id, load_id)
    WHERE end_ns > sent_ns
)
SELECT report_id, min(sent_ns) AS start_ns, max(end_ns) AS end_ns
FROM (
    SELECT *, sum((coalesce(sent_ns > reached_ns, true))::INTEGER) OVER (
        PARTITION BY report_id ORDER BY sent_ns, end_ns ROWS UNBOUNDED PRECEDING
    ) AS island
    FROM ordered
)
GROUP BY report_id, island;
