-- GPU operations with the GPU that ran them: its number among all GPUs, and its physical number.
CREATE VIEW _placed_launches AS
SELECT t.track, t.device AS gpu, l.*
FROM launches AS l
JOIN _tracks AS t
    ON t.report_id = l.report_id
        AND t.pid IS NOT DISTINCT FROM l.pid
        AND t.cuda_device IS NOT DISTINCT FROM l.device;
