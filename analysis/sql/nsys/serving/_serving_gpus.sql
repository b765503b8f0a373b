-- GPUs on which a server answers requests: their ranges show the iterations of an engine, or they were
-- captured while the server was under load.
CREATE VIEW _serving_gpus AS
SELECT DISTINCT g.report_id, g.device
FROM (
    SELECT report_id, pid FROM _iteration_ranges
    UNION
    SELECT report_id, pid FROM _served_captures
) AS p
JOIN _tracks AS t USING (report_id, pid)
JOIN _gpus AS g USING (track);
