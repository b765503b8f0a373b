-- Kernels that begin in the analyzed windows, with the number of their GPU.
CREATE VIEW _analysed_kernels AS
SELECT w.track, k.*
FROM nsys_kernels AS k
JOIN _analysed_spans AS w
    ON w.report_id = k.report_id
        AND w.pid IS NOT DISTINCT FROM k.pid
        AND w.cuda_device IS NOT DISTINCT FROM k.device
        AND k.start_ns >= w.start_ns
        AND k.start_ns < w.end_ns;
