-- GPUs on which a server answers requests.
CREATE VIEW _serving_gpus AS
SELECT DISTINCT g.report_id, g.device
FROM _engines AS p
JOIN _tracks AS t USING (report_id, pid)
JOIN _gpus AS g USING (track);
