-- Idle time of each GPU in the analyzed windows by the stack that the host had meanwhile. The thread is the
-- one that launched the next operation, or the main thread of its process if that thread has no stacks at the
-- time, or waits for work. While the thread waits for worker processes whose stacks were sampled, such as
-- those of a DataLoader, the time belongs to what the workers did in the analyzed windows, by how long they
-- did it. The times of a GPU add up to its idle time. See host_stacks and host_frames for the frames.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- step BIGINT: number of the step, from 0; NULL outside steps
-- cause VARCHAR: cause that accounts for the largest part of the interval, as a category of gpu_time_budget
-- stack_id BIGINT: stack of the thread; for `sync`, of the call that waited for the GPU. NULL if no sample
--   stands for the time
-- worker_stack_id BIGINT: stack of the worker process that the thread waits for; NULL if it waits for none
-- samples BIGINT: number of samples that stand for the time; 0 if it was not sampled, or is an estimate
-- in_all BIGINT: number of samples, in all steps, that an estimate rests on; for a worker, of intervals with
--   this stack; 0 if there is no estimate
-- reason VARCHAR: reason why there is no stack: not sampled, no frames recorded, or not caused by the host
--   (the GPU had work, or the profiler delayed it); NULL if there is one
-- time_ns BIGINT: idle time, ns
CREATE VIEW idle_stacks AS
WITH fetching AS (
    SELECT
        p.* EXCLUDE (stack_id), g.report_id, g.device, c.awaits,
        -- One stack stands for all in which a line waits for workers.
        if(
            c.awaits IS NULL,
            p.stack_id,
            min(p.stack_id) OVER (PARTITION BY g.report_id, c.awaits, c.frame_id)
        ) AS stack_id
    FROM _idle_pieces AS p
    JOIN _gpus AS g USING (track)
    LEFT JOIN _stack_code AS c ON c.report_id = g.report_id AND c.stack_id = p.stack_id
),
spans AS (
    SELECT report_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM _analysed_spans
    GROUP BY report_id
),
-- An interval in which a worker had one stack counts as one sample, however long it is.
worked AS (
    SELECT
        s.report_id, coalesce(c.works_for, 'pool') AS works_for, s.stack_id, count(*) AS samples,
        sum(least(s.end_ns, a.end_ns) - greatest(s.start_ns, a.start_ns)) AS ns
    FROM _host_cells AS s
    JOIN spans AS a ON a.report_id = s.report_id AND s.end_ns > a.start_ns AND s.start_ns < a.end_ns
    JOIN _stack_code AS c ON c.report_id = s.report_id AND c.stack_id = s.stack_id
    -- Workers that use the GPU themselves have idle time of their own.
    ANTI JOIN _tracks AS t ON t.report_id = s.report_id AND t.pid = s.pid
    WHERE (s.source = 'py-spy' OR c.works_for IS NOT NULL) AND NOT c.is_idle
    GROUP BY ALL
),
workers AS (
    SELECT
        report_id, works_for, stack_id, samples,
        sum(ns) OVER so_far AS until,
        until - ns AS since,
        sum(ns) OVER (PARTITION BY report_id, works_for) AS total
    FROM worked
    WINDOW so_far AS (PARTITION BY report_id, works_for ORDER BY stack_id)
),
waited AS (
    SELECT
        track, window_id, report_id, device, cause, awaits, stack_id, reason, sum(samples)::BIGINT AS samples,
        max(in_all) AS in_all, sum(ns)::BIGINT AS ns
    FROM fetching
    GROUP BY ALL
),
placed AS (
    SELECT
        f.track, f.window_id, f.report_id, f.device, f.cause, f.stack_id, w.stack_id AS worker_stack_id,
        if(w.stack_id IS NULL, f.samples, 0) AS samples,
        coalesce(w.samples, f.in_all) AS in_all, f.reason,
        if(w.stack_id IS NULL, f.ns, f.ns * w.until // w.total - f.ns * w.since // w.total)::BIGINT AS ns
    FROM waited AS f
    LEFT JOIN workers AS w ON w.report_id = f.report_id AND w.works_for = f.awaits
)
SELECT
    p.report_id,
    p.device,
    s.step,
    p.cause,
    p.stack_id,
    p.worker_stack_id,
    sum(p.samples)::BIGINT AS samples,
    max(p.in_all)::BIGINT AS in_all,
    p.reason,
    sum(p.ns)::BIGINT AS time_ns
FROM placed AS p
LEFT JOIN _step_windows AS s USING (track, window_id)
WHERE p.ns > 0
GROUP BY ALL
ORDER BY p.report_id, p.device, time_ns DESC, s.step, p.cause, p.stack_id, p.worker_stack_id;
