-- Name and number of SMs of each GPU of a timeline; NULL if not recorded.
CREATE VIEW _gpu_sms AS
SELECT
    u.track,
    u.report_id,
    coalesce(g.name, r.gpu) AS gpu,
    coalesce(g.sm_count, r.sm_count) AS sm_count
FROM _gpus AS u
JOIN reports AS r USING (report_id)
LEFT JOIN nsys_gpus AS g ON g.report_id = u.report_id AND g.gpu = u.device;
