-- The time budget of each step of a training or inference loop; see `steps` for what a step is.  With
-- the time outside steps, step NULL, the budgets add up to that of the whole capture.
--
-- report_id: report
-- device: physical GPU number
-- step: name of the step; NULL for time before, between and behind steps
-- step_index: step number on the device, from 1; NULL for time outside steps
-- phase: start-up, warm-up, steady, other or shutdown, as in steps
-- window_start_ns: start of the window, ns
-- window_end_ns: end of the window, ns
-- step_ns: duration, ns
-- category: as in gpu_time_budget
-- time_ns: time, ns
-- share_pct: share of the step, %
CREATE VIEW step_budget AS
SELECT
    b.report_id,
    b.device,
    w.name AS step,
    w.step AS step_index,
    p.phase,
    b.window_start_ns,
    b.window_end_ns,
    b.window_end_ns - b.window_start_ns AS step_ns,
    b.category,
    b.time_ns,
    100.0 * b.time_ns / nullif(b.window_end_ns - b.window_start_ns, 0) AS share_pct
FROM _budgets AS b
JOIN _step_windows AS w USING (track, window_id)
JOIN _step_phases AS p USING (track, window_id)
WHERE p.phase != 'whole'
ORDER BY b.report_id, b.device, b.window_start_ns, w.step NULLS FIRST, b.time_ns DESC, b.category;
