-- The time budget of each step of a training or inference loop.  A step is an NVTX range such as
-- `step 3`; its window on the GPU runs from the first operation that it launched to the first of
-- the next step.
--
-- report_id: report
-- device: physical GPU number
-- step: name of the range
-- step_index: step number on the device, from 1
-- window_start_ns: start of the window, ns
-- window_end_ns: end of the window, ns
-- step_ns: duration, ns
-- category: as in gpu_time_budget
-- time_ns: time, ns
-- share_pct: share of the step, %
CREATE VIEW step_budget AS
SELECT
    report_id,
    device,
    name AS step,
    window_id AS step_index,
    window_start_ns,
    window_end_ns,
    window_end_ns - window_start_ns AS step_ns,
    category,
    time_ns,
    100.0 * time_ns / nullif(window_end_ns - window_start_ns, 0) AS share_pct
FROM _budgets
WHERE window_id > 0
ORDER BY report_id, device, window_id, time_ns DESC, category;
