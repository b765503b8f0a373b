-- Processes that share a GPU, busiest first. The view is empty if each GPU is used by one process. Budgets
-- and verdicts refer to the whole GPU, in the steps of the first process with steps; for the steps of each
-- process, see step_budget.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- busy_ns BIGINT: time in which operations of the process ran, with overlaps counted once, ns
-- busy_pct DOUBLE: share of busy_ns in the time from the first operation on the GPU to the end of the last
--   operation, %
-- steps BIGINT: number of steady steps of the process; NULL without steady steps
-- step_ns DOUBLE: median duration of these steps, ns
-- own_pct DOUBLE: share of the step time in which operations of the process run, %
-- other_pct DOUBLE: share of the step time in which only operations of other processes run, %
-- idle_pct DOUBLE: share of the step time in which the GPU is idle, %
CREATE VIEW gpu_processes AS
WITH ops AS (
    SELECT
        track,
        pid,
        start_ns,
        end_ns,
        max(end_ns) OVER (
            PARTITION BY track, pid ORDER BY start_ns, end_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS busy_until
    FROM _ops
    SEMI JOIN (SELECT track FROM _tracks GROUP BY track HAVING count(DISTINCT pid) > 1) USING (track)
),
busy AS (
    SELECT track, pid, sum(beyond_ns(start_ns, end_ns, busy_until))::BIGINT AS time_ns
    FROM ops
    GROUP BY track, pid
),
windows AS (
    SELECT
        b.track,
        b.window_id,
        sum(b.time_ns) AS dur_ns,
        sum(b.time_ns) FILTER (is_busy(category)) AS own_ns,
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
