-- The name of each report: the configuration it comes from, else its file; and the configuration's
-- number.
CREATE VIEW _labels AS
SELECT r.report_id, coalesce(t.short_label, r.source_name) AS label, t.task_index AS position
FROM reports AS r
LEFT JOIN _report_tasks AS t USING (report_id);
