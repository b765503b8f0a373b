-- Steps of each process on each GPU, and the time before, between and behind them.  They come from
-- --step-range, NVTX ranges (numbered names, or one name repeated that covers most of the work),
-- torch.profiler's steps, or the period of the launch sequence: no annotation is needed.
--
-- report_id: report
-- device: physical GPU number
-- process_id: process; NULL for time outside steps
-- step: number of the step on that GPU, from 1; NULL for time outside steps
-- name: name of the range, or `step n` of the loop; NULL for time outside steps
-- source: step range, NVTX, ProfilerStep or period
-- start_ns: start of the first operation that it launched, ns
-- end_ns: start of the next step, or end of its own last operation where none follows, ns
-- launches: kernels and graphs that ran in it (graph nodes one by one, if traced by node); NULL for steps
--   of other processes on the same GPU
-- phase: start-up, warm-up, steady, other (evaluation, steps that differ) or shutdown; whole if no step
--   was found
-- match: share of its launches that equal those of a neighbouring step, 0-1; NULL for steps from
--   ranges
-- why: why that phase; NULL for steady steps
CREATE VIEW steps AS
WITH counted AS (
    SELECT track, window_id, count(*) FILTER (class != 'transfer') AS launches
    FROM _ops
    GROUP BY track, window_id
),
others AS (
    SELECT p.*, row_number() OVER (PARTITION BY p.track, p.pid ORDER BY p.start_ns, p.host_start_ns) AS step
    FROM _process_steps AS p
    ANTI JOIN _step_windows AS w ON w.track = p.track AND w.pid = p.pid
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
FROM _step_windows AS w
JOIN _gpus AS g USING (track)
JOIN _step_phases AS p USING (track, window_id)
LEFT JOIN counted AS c USING (track, window_id)
UNION ALL
SELECT
    g.report_id, g.device, o.pid, o.step, o.name, o.source, o.start_ns, o.end_ns, NULL,
    'other', o.match, 'another process on this GPU has more of its time'
FROM others AS o
JOIN _gpus AS g USING (track)
ORDER BY 1, 2, start_ns, process_id;
