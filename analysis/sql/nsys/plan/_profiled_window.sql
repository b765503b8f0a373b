-- The window of each GPU whose kernels are worth profiling: the part of the capture that verdicts
-- are about.
CREATE VIEW _profiled_window AS
SELECT
    t.report_id,
    t.device,
    'whole' AS kind,
    s.start_ns,
    s.end_ns,
    NULL::BIGINT AS steps
FROM _gpus AS t
JOIN _spans AS s USING (track);
