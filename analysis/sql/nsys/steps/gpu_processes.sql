-- Processes that share a GPU, busiest first. The view is empty if no GPU is used by more than one process.
-- Budgets and verdicts cover all processes on the GPU, during the steps of the busiest process with steps.
-- For each process's own steps, see step_budget.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- busy_ns BIGINT: time during which at least one kernel of the process ran, ns
-- busy_pct DOUBLE: busy_ns as a percentage of the time from the GPU's first operation to the end of its
--   last operation
-- steps BIGINT: number of the process's steady steps; NULL if the process has no steady steps
-- step_ns DOUBLE: median duration of the steady steps, ns
-- own_pct DOUBLE: percentage of the step time during which the process's own operations run
-- other_pct DOUBLE: percentage of the step time during which only other processes' operations run
-- idle_pct DOUBLE: percentage of the step time during which the GPU is idle
CREATE VIEW gpu_processes AS
WITH ops AS (
    SELECT
        track,
        pid,
        class,
        start_ns,
        end_ns,
        max(CASE WHEN class != 'transfer' THEN end_ns END) OVER (
            PARTITION BY track, pid ORDER BY start_ns, end_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS kernels_until
    FROM _ops
    SEMI JOIN (SELECT track FROM _tracks GROUP BY track HAVING count(DISTINCT pid) > 1) USING (track)
),
busy AS (
    SELECT
        track,
        pid,
        coalesce(
            sum(beyond_ns(start_ns, end_ns, kernels_until)) FILTER (class != 'transfer'), 0
        )::BIGINT AS time_ns
    FROM ops
    GROUP BY track, pid
),
windows AS (
    SELECT
        b.track,
        b.window_id,
        sum(b.time_ns) AS dur_ns,
        sum(b.time_ns) FILTER (is_work(category)) AS own_ns,
        sum(b.time_ns) FILTER (category = 'other_process') AS other_ns
    FROM _lane_budgets AS b
    JOIN _step_phases AS p USING (track, window_id)
    WHERE p.phase = 'steady'
    GROUP BY b.track, b.window_id
),
steady AS (
    SELECT
        w.track,
        w.lane_pid AS pid,
        sum(w.repeats)::BIGINT AS steps,
        median(s.dur_ns / w.repeats) AS step_ns,
        100.0 * sum(s.own_ns) / sum(s.dur_ns) AS own_pct,
        100.0 * sum(s.other_ns) / sum(s.dur_ns) AS other_pct
    FROM windows AS s
    JOIN _lane_windows AS w USING (track, window_id)
    GROUP BY w.track, w.lane_pid
)
SELECT
    g.report_id,
    g.device,
    b.pid AS process_id,
    b.time_ns AS busy_ns,
    100.0 * b.time_ns / nullif(p.end_ns - p.start_ns, 0) AS busy_pct,
    s.steps,
    s.step_ns,
    s.own_pct,
    s.other_pct,
    100 - s.own_pct - s.other_pct AS idle_pct
FROM busy AS b
JOIN _gpus AS g USING (track)
JOIN _spans AS p USING (track)
LEFT JOIN steady AS s USING (track, pid)
ORDER BY g.report_id, g.device, b.time_ns DESC, b.pid;
