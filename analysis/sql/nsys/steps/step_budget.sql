-- Time budget of each step in a training or inference loop, and of the time outside steps. For the definition
-- of steps, see `steps`. If only one process uses a GPU, the budgets add up to the whole capture's budget. If
-- several processes share a GPU, each process has its own steps and budgets.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process to which the step belongs; NULL for time outside steps, which is assigned to
--   the process with the most work
-- step VARCHAR: name of the step; NULL for time before, between and after steps
-- step_index BIGINT: number of the step within the process on this GPU, from 1; NULL for time outside
--   steps
-- phase VARCHAR: start-up, warm-up, steady, other or shutdown, as in steps
-- window_start_ns BIGINT: start of the window, ns
-- window_end_ns BIGINT: end of the window, ns
-- step_ns BIGINT: duration of the step, ns
-- category VARCHAR: category, as in gpu_time_budget. If processes share the GPU, only the process's own
--   work counts as work; other_process is the time during which only other processes work, and
--   unattributed includes idle time before other processes' work
-- time_ns BIGINT: time, ns
-- share_pct DOUBLE: percentage of the step
CREATE VIEW step_budget AS
WITH budgets AS (
    SELECT track, window_id, category, time_ns
    FROM _budgets
    ANTI JOIN _lane_budgets USING (track)
    WHERE window_id > 0
    UNION ALL
    SELECT track, window_id, category, time_ns
    FROM _lane_budgets
)
SELECT
    g.report_id,
    g.device,
    w.pid AS process_id,
    w.name AS step,
    w.step AS step_index,
    p.phase,
    w.start_ns AS window_start_ns,
    w.end_ns AS window_end_ns,
    w.end_ns - w.start_ns AS step_ns,
    b.category,
    b.time_ns,
    100.0 * b.time_ns / nullif(w.end_ns - w.start_ns, 0) AS share_pct
FROM budgets AS b
JOIN _lane_windows AS w USING (track, window_id)
JOIN _step_phases AS p USING (track, window_id)
JOIN _gpus AS g USING (track)
WHERE p.phase != 'whole' AND (w.lane = 1 OR w.step IS NOT NULL)
ORDER BY g.report_id, g.device, w.lane, w.start_ns, w.step NULLS FIRST, b.time_ns DESC, b.category;
