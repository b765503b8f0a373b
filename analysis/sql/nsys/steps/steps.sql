-- Steps of each process on each GPU, and the time before, between and after steps. Steps come from
-- --step-range, NVTX ranges (numbered names, or one repeated name that covers most of the work),
-- torch.profiler's steps, or a loop of the launch sequence, which requires no annotation.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id; NULL for time outside steps, which is assigned to the process with the
--   most work on the GPU
-- step BIGINT: number of the step within the process on this GPU, from 1; NULL for time outside steps
-- name VARCHAR: name of the range, or `step n` if the step comes from the launch sequence;
--   NULL for time outside steps
-- source VARCHAR: source of the step: step range, NVTX, ProfilerStep or period
-- start_ns BIGINT: start of the first operation that was launched in the step, ns
-- end_ns BIGINT: start of the next step, or end of the process's last operation if there is no next step,
--   ns
-- launches BIGINT: number of kernels and graphs from this process that started during the step (graph
--   nodes count individually if traced by node)
-- phase VARCHAR: start-up, warm-up, steady, other (evaluation, or a step that differs from the others) or
--   shutdown; whole if no step was found
-- match DOUBLE: fraction (0-1) of the step's launches that match those of a neighboring step; NULL for
--   steps from ranges
-- why VARCHAR: why the step has this phase; NULL for steady steps
CREATE VIEW steps AS
WITH lanes AS (
    SELECT DISTINCT track, lane, lane_pid
    FROM _lane_windows
),
kernels AS (
    SELECT o.track, o.start_ns, l.lane_pid
    FROM _ops AS o
    JOIN lanes AS l ON l.track = o.track AND l.lane_pid = o.pid
    WHERE l.lane > 1 AND o.class != 'transfer'
),
begins AS (
    -- If windows begin at the same time, all but the last are empty.
    SELECT track, lane_pid, start_ns, max(window_id) AS window_id
    FROM _lane_windows
    GROUP BY track, lane_pid, start_ns
),
counted AS (
    -- Operations are assigned to the windows of lane 1.
    SELECT o.track, o.window_id, count(*) AS launches
    FROM _ops AS o
    JOIN lanes AS l ON l.track = o.track AND coalesce(l.lane_pid = o.pid, true)
    WHERE l.lane = 1 AND o.class != 'transfer'
    GROUP BY o.track, o.window_id
    UNION ALL
    SELECT w.track, w.window_id, count(*) AS launches
    FROM kernels AS k
    ASOF JOIN begins AS w
        ON w.track = k.track AND w.lane_pid = k.lane_pid AND w.start_ns <= k.start_ns
    GROUP BY w.track, w.window_id
)
SELECT
    g.report_id,
    g.device,
    w.pid AS process_id,
    w.step,
    w.name,
    w.source,
    w.start_ns,
    w.end_ns,
    coalesce(c.launches, 0) AS launches,
    p.phase,
    w.match,
    p.why
FROM _lane_windows AS w
JOIN _gpus AS g USING (track)
JOIN _step_phases AS p USING (track, window_id)
LEFT JOIN counted AS c USING (track, window_id)
WHERE w.lane = 1 OR w.step IS NOT NULL
ORDER BY g.report_id, g.device, w.start_ns, w.lane;
