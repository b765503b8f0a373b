-- Configuration of each report, from the latest run, because many runs may replay one recording.
CREATE VIEW _report_tasks AS
SELECT r.report_id, t.task_index, t.short_label, t.flops, t.dtype
FROM reports AS r
JOIN run_tasks AS t ON t.run_id = r.run_id AND list_contains(t.reports, r.report_id)
QUALIFY row_number() OVER (PARTITION BY r.report_id ORDER BY t.task_index) = 1;
