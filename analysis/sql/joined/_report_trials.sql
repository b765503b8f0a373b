-- Trials of the program behind each report: those that followed the report's findings, those of its run, and
-- those of the same command on the same GPU. In a run of several configurations, the command decides.
CREATE VIEW _report_trials AS
WITH configurations AS (
    SELECT run_id, command, reports, count(*) OVER (PARTITION BY run_id) AS beside
    FROM run_tasks
)
SELECT DISTINCT r.report_id, t.trial_id, t.tried_at
FROM reports AS r
LEFT JOIN configurations AS c ON c.run_id = r.run_id AND list_contains(c.reports, r.report_id)
JOIN trials AS t
    ON (len(t.command) > 0 AND t.command = c.command AND t.gpu = r.gpu)
    OR (
        (list_contains(t.reports, r.report_id) OR t.run_id = r.run_id)
        AND (coalesce(c.beside, 1) = 1 OR t.command = c.command)
    );
