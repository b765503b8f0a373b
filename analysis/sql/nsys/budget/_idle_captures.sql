-- Timelines without steps on which GPU work takes only a small part of the time from the first to the last
-- CUDA call, so that an analysis of the GPU work explains nothing.
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
