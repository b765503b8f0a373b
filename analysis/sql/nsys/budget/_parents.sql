-- Processes that started copies of themselves.
CREATE VIEW _parents AS
SELECT DISTINCT report_id, pid
FROM _process_starts;
