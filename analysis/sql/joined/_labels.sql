-- Name of each report (its configuration, else its file), and the number of the configuration. A timeline
-- that was captured while a server was under load is named by the rate of its requests as well.
CREATE VIEW _labels AS
WITH rates AS (
    SELECT t.report_id, any_value(l.rate) AS rate
    FROM request_loads AS l
    JOIN reports AS s ON s.report_id = l.report_id
    JOIN reports AS t ON t.source_name = l.capture AND t.directory = s.directory
    GROUP BY t.report_id
    HAVING count(DISTINCT l.rate) = 1
)
SELECT
    r.report_id,
    CASE
        WHEN p.rate IS NULL OR t.short_label IS NULL THEN coalesce(t.short_label, r.source_name)
        ELSE concat_ws(
            ', ', nullif(t.short_label, '-'), printf('%g request%s/s', p.rate, if(p.rate = 1, '', 's'))
        )
    END AS label,
    t.task_index AS position
FROM reports AS r
LEFT JOIN _report_tasks AS t USING (report_id)
LEFT JOIN rates AS p USING (report_id);
