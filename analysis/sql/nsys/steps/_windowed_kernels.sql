-- Kernels with the GPU that ran them, the analyzed part of its time (analysis_windows), and whether they
-- begin within it.
CREATE VIEW _windowed_kernels AS
SELECT
    k.*,
    t.device AS gpu,
    w.kind AS window_kind,
    w.start_ns AS window_start_ns,
    w.end_ns AS window_end_ns,
    w.steps,
    k.start_ns >= w.start_ns AND k.start_ns < w.end_ns AS inside
FROM nsys_kernels AS k
JOIN _tracks AS t
    ON t.report_id = k.report_id
        AND t.pid IS NOT DISTINCT FROM k.pid
        AND t.cuda_device IS NOT DISTINCT FROM k.device
JOIN analysis_windows AS w ON w.report_id = t.report_id AND w.device IS NOT DISTINCT FROM t.device;
