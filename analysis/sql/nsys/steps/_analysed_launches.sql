-- GPU operations that begin in the analyzed windows, with the number of their GPU.
CREATE VIEW _analysed_launches AS
SELECT w.track, l.*
FROM launches AS l
JOIN _analysed_spans AS w
    ON w.report_id = l.report_id
        AND w.pid IS NOT DISTINCT FROM l.pid
        AND w.cuda_device IS NOT DISTINCT FROM l.device
        AND l.start_ns >= w.start_ns
        AND l.start_ns < w.end_ns;
