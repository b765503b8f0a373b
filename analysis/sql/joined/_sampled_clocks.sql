-- Median SM clock of each timeline's GPUs in the analyzed windows, if GPU metrics were sampled. nsys labels
-- the values MHz but stores Hz.
CREATE VIEW _sampled_clocks AS
SELECT m.report_id, median(m.value) AS sm_clock_hz
FROM nsys_gpu_metrics AS m
JOIN analysis_windows AS w
    ON w.report_id = m.report_id
        AND w.device = m.gpu
        AND m.timestamp_ns BETWEEN w.start_ns AND w.end_ns
WHERE m.metric = 'GPC Clock Frequency [MHz]' AND m.value > 0
GROUP BY m.report_id;
