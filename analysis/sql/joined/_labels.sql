-- Name of each report (its configuration, else its file), and its place among them: by the number of the
-- configuration, then by the rate of requests. A timeline that was captured while a server was under load has
-- that rate in its name. Other reports of such a server have no configuration of their own: their files name
-- them.
CREATE VIEW _labels AS
WITH rates AS (
    SELECT c.report_id, any_value(c.rate) AS rate, any_value(r.run_id) AS run_id
    FROM _captured_loads AS c
    JOIN reports AS r USING (report_id)
    GROUP BY c.report_id
    HAVING count(DISTINCT c.rate) = 1
)
SELECT
    r.report_id,
    CASE
        WHEN t.short_label IS NULL THEN r.source_name
        WHEN list_contains(string_split(t.short_label, ' '), printf('rate=%g', p.rate)) THEN t.short_label
        WHEN p.rate IS NOT NULL THEN concat_ws(
            ', ', nullif(t.short_label, '-'), printf('%g request%s/s', p.rate, if(p.rate = 1, '', 's'))
        )
        WHEN t.short_label = '-' AND r.run_id IN (SELECT run_id FROM rates) THEN r.source_name
        ELSE t.short_label
    END AS label,
    CASE WHEN t.task_index IS NOT NULL OR p.rate IS NOT NULL
        THEN dense_rank() OVER (ORDER BY t.task_index NULLS LAST, p.rate NULLS LAST)
    END AS position
FROM reports AS r
LEFT JOIN _report_tasks AS t USING (report_id)
LEFT JOIN rates AS p USING (report_id);
