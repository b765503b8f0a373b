-- Model FLOP utilisation of each step: the workload's operations of an iteration over the step's
-- time and the dense peak of its type.  For timelines that perfpipe launched, whose workload file
-- states flops.
--
-- report_id: nsys report
-- device: GPU number of the machine
-- step: name of the range
-- step_index: counts the steps of the device from 1
-- step_ns: length, ns
-- model_flop: floating-point operations of an iteration by the workload file
-- model_flop_per_s: these over the step's time, FLOP/s
-- mfu_pct: of the dense peak of that type, %; NULL where the peak is unknown
CREATE VIEW step_mfu AS
WITH steps AS (
    SELECT DISTINCT report_id, device, step, step_index, step_ns
    FROM step_budget
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
FROM steps AS s
JOIN _report_tasks AS t USING (report_id)
LEFT JOIN gpu_peaks AS p ON p.report_id = s.report_id AND p.dtype = t.dtype
WHERE t.flops IS NOT NULL
ORDER BY s.report_id, s.device, s.step_index;
