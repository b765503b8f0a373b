-- Timelines without steps on which GPU work only takes a small part of the time of the program's CUDA calls,
-- so that its analysis explains nothing.
-- @materialize
CREATE VIEW _idle_captures AS
WITH calls AS (
    SELECT report_id, max(end_ns) - min(start_ns) AS calls_ns FROM nsys_api_calls GROUP BY report_id
)
SELECT w.report_id, w.device, w.time_ns, c.calls_ns
FROM analysis_windows AS w
JOIN calls AS c USING (report_id)
WHERE w.kind = 'whole' AND w.steps IS NULL
    AND 100 * w.time_ns < threshold('timeline.hardly_used_pct') * c.calls_ns;
