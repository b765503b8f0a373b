-- Name of each report (its configuration, else its file), and the number of the configuration.
CREATE VIEW _labels AS
SELECT r.report_id, coalesce(t.short_label, r.source_name) AS label, t.task_index AS position
FROM reports AS r
LEFT JOIN _report_tasks AS t USING (report_id);
