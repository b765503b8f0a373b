-- MFU (model FLOPs utilization) of each step: the workload's FLOPs per iteration, divided by the step's time
-- and the dense peak for the workload's data type. A timeline has rows only if perfpipe recorded the timeline
-- and the workload file declares flops.
--
-- report_id VARCHAR: nsys report
-- device BIGINT: physical GPU number
-- step VARCHAR: name of the NVTX range that marks the step
-- step_index BIGINT: step number on the device, from 1
-- step_ns BIGINT: duration of the step, ns: without the profiler if the median time of such a step is known,
--   assuming that the profiler lengthens every step alike
-- model_flop DOUBLE: FLOPs per iteration, from the workload file
-- model_flop_per_s DOUBLE: model_flop / step time, FLOP/s
-- mfu_pct DOUBLE: MFU: model_flop_per_s, % of the dense peak for the data type; NULL if the peak is unknown
CREATE VIEW step_mfu AS
WITH iterations AS (
    -- A repeating sequence may differ from one iteration of the program.
    SELECT
        s.report_id,
        s.device,
        s.name AS step,
        s.step AS step_index,
        ((s.end_ns - s.start_ns) / (1 + coalesce(t.growth_pct, 0) / 100))::BIGINT AS step_ns
    FROM steps AS s
    LEFT JOIN step_times AS t ON t.report_id = s.report_id AND t.device IS NOT DISTINCT FROM s.device
    WHERE s.step IS NOT NULL AND s.source != 'period'
)
SELECT
    s.report_id,
    s.device,
    s.step,
    s.step_index,
    s.step_ns,
    t.flops AS model_flop,
    t.flops / nullif(s.step_ns / 1e9, 0) AS model_flop_per_s,
    pct_of_peak(t.flops / nullif(s.step_ns / 1e9, 0), p.flop_per_s) AS mfu_pct
FROM iterations AS s
JOIN _report_tasks AS t USING (report_id)
LEFT JOIN gpu_peaks AS p ON p.report_id = s.report_id AND p.dtype = t.dtype
WHERE t.flops IS NOT NULL
ORDER BY s.report_id, s.device, s.step_index;
