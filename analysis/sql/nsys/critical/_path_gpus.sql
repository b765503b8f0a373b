-- GPUs whose work may be on the critical path of a step: all GPUs of the job, with the time on the report's
-- own clock from which work is read. What released the first operations of a step may lie before it.
-- @materialize
CREATE VIEW _path_gpus AS
SELECT DISTINCT
    s.job,
    s.role,
    p.report_id,
    p.device,
    g.track,
    p.offset_ns,
    2 * s.from_ns - s.bounds_ns[2] - p.offset_ns AS read_from_ns,
    s.until_ns - p.offset_ns AS read_until_ns
FROM _path_steps AS s
JOIN step_pictures AS p USING (job)
JOIN _gpus AS g ON g.report_id = p.report_id AND g.device IS NOT DISTINCT FROM p.device;
