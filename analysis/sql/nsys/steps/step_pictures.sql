-- Steps for which the reports draw a timeline: on each GPU, the analyzed step with the duration nearest to
-- the median, and the slowest step. All GPUs in a job show the same steps. Without steps, the whole
-- analyzed window is drawn.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- job VARCHAR: job, as in job_ranks; the report_id if the report's processes do not communicate
-- role VARCHAR: which step is drawn: median or slowest; median for a window without steps
-- step BIGINT: number of the step; NULL if there are no steps
-- name VARCHAR: name of the step; NULL if there are no steps
-- start_ns BIGINT: start of the step, ns
-- end_ns BIGINT: end of the step, ns
-- offset_ns BIGINT: offset to add to the report's times to get job time, ns
CREATE VIEW step_pictures AS
WITH jobs AS (
    SELECT DISTINCT job, report_id
    FROM _job_ranks
),
windows AS (
    SELECT
        t.report_id,
        t.device,
        coalesce(j.job, t.report_id) AS job,
        w.step,
        w.name,
        w.start_ns,
        w.end_ns,
        w.end_ns - w.start_ns AS dur_ns,
        abs(w.end_ns - w.start_ns - median(w.end_ns - w.start_ns) OVER (PARTITION BY w.track))::BIGINT
            AS distance_ns
    FROM _step_windows AS w
    SEMI JOIN _analysed USING (track, window_id)
    JOIN _gpus AS t USING (track)
    LEFT JOIN jobs AS j USING (report_id)
    -- If there are steps, the time between them is not a step.
    QUALIFY w.step IS NOT NULL OR NOT bool_or(w.step IS NOT NULL) OVER (PARTITION BY w.track)
),
chosen AS (
    -- A step that all GPUs have, if there is one.
    SELECT job, step, count(*) AS gpus, sum(distance_ns) AS distance_ns, max(dur_ns) AS dur_ns
    FROM windows
    GROUP BY job, step
    QUALIFY count(*) = max(count(*)) OVER (PARTITION BY job)
),
roles AS (
    SELECT job, 'median' AS role, arg_min(step, (distance_ns, step)) AS step
    FROM chosen
    GROUP BY job
    UNION ALL
    SELECT job, 'slowest', arg_max(step, (dur_ns, -step))
    FROM chosen
    WHERE step IS NOT NULL
    GROUP BY job
)
SELECT
    w.report_id,
    w.device,
    w.job,
    r.role,
    w.step,
    w.name,
    w.start_ns,
    w.end_ns,
    coalesce(c.offset_ns, 0) AS offset_ns
FROM roles AS r
JOIN windows AS w ON w.job = r.job AND w.step IS NOT DISTINCT FROM r.step
LEFT JOIN _clocks AS c ON c.job = w.job AND c.report_id = w.report_id
ORDER BY w.job, r.role, w.report_id, w.device;
