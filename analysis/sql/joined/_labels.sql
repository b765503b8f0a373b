-- Name of each report (its configuration, else its file), and the number of the configuration. A timeline
-- that was captured while a server was under load is named by the rate of its requests as well.
CREATE VIEW _labels AS
WITH rates AS (
    SELECT report_id, any_value(rate) AS rate
    FROM _captured_loads
    GROUP BY report_id
    HAVING count(DISTINCT rate) = 1
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
