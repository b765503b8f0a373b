-- The steady steps of each GPU, whatever window is chosen: median, and the part of it, on average, that
-- the host does not cause: work, and gaps between operations that were launched in time.
CREATE VIEW _steady_steps AS
WITH steady AS (
    SELECT w.track, w.window_id, w.repeats, (w.end_ns - w.start_ns) / w.repeats AS mean_ns
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
    WHERE p.phase = 'steady'
),
issued AS (
    SELECT track, sum(time_ns) AS time_ns
    FROM _budgets
    SEMI JOIN steady USING (track, window_id)
    WHERE category IN ('compute', 'communication', 'transfer', 'kernel_gap')
    GROUP BY track
)
SELECT
    g.report_id,
    g.device,
    median(s.mean_ns) AS step_ns,
    any_value(i.time_ns) / sum(s.repeats) AS gpu_ns
FROM steady AS s
JOIN issued AS i USING (track)
JOIN _gpus AS g USING (track)
GROUP BY g.report_id, g.device;
