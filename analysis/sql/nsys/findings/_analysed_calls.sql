-- CUDA calls by the process whose steps are analyzed, restricted to calls that begin in the analyzed windows
-- of its GPU.
CREATE VIEW _analysed_calls AS
SELECT c.report_id, g.device, w.track, c.pid, c.tid, c.name, c.start_ns, c.end_ns
FROM nsys_api_calls AS c
JOIN _gpus AS g ON g.report_id = c.report_id
JOIN _step_windows AS w ON w.track = g.track AND w.pid = c.pid
    AND c.start_ns >= w.start_ns AND c.start_ns < w.end_ns
SEMI JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id;
