-- Work and waiting of each stage in each step, ns. Work is the time in which a kernel or copy runs, except
-- messages of the pipeline, collectives over gradients and the optimizer. `busy_ns` includes the messages.
-- @materialize
CREATE VIEW _stage_times AS
WITH placed AS (
    SELECT
        w.job,
        w.group_id,
        w.stage,
        w.step,
        o.op_id,
        greatest(o.start_ns, w.start_ns) AS start_ns,
        least(o.end_ns, w.end_ns) AS end_ns,
        g.op_id IS NULL AS works,
        coalesce(g.group_id = w.group_id, o.start_ns >= w.own_start_ns AND o.start_ns < w.own_end_ns)
            AS counts
    FROM _stage_windows AS w
    JOIN _ops AS o ON o.track = w.track AND o.start_ns < w.end_ns AND o.end_ns > w.start_ns
    LEFT JOIN (
        SELECT o.report_id, o.op_id, o.group_id
        FROM _group_ops AS o
        JOIN rank_groups AS r USING (job, group_id)
        WHERE r.kind IN ('pipeline', 'data', 'sharded data')
    ) AS g ON g.report_id = w.report_id AND g.op_id = o.op_id
),
ordered AS (
    SELECT
        *,
        max(if(works, end_ns, NULL)) OVER earlier AS work_until,
        max(end_ns) OVER earlier AS busy_until
    FROM placed
    WHERE counts
    WINDOW earlier AS (
        PARTITION BY job, group_id, stage, step
        ORDER BY start_ns, end_ns, op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
sums AS (
    SELECT
        job,
        group_id,
        stage,
        step,
        sum(if(works, beyond_ns(start_ns, end_ns, work_until), 0))::BIGINT AS work_ns,
        sum(beyond_ns(start_ns, end_ns, busy_until))::BIGINT AS busy_ns
    FROM ordered
    GROUP BY job, group_id, stage, step
)
SELECT
    w.*,
    w.end_ns - w.start_ns AS window_ns,
    coalesce(s.work_ns, 0) AS work_ns,
    coalesce(s.busy_ns, 0) AS busy_ns
FROM _stage_windows AS w
LEFT JOIN sums AS s USING (job, group_id, stage, step);
