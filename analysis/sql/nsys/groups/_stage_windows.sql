-- Time in which the microbatches of a step pass through a pipeline, on the clock of each stage: from the
-- first compute kernel of any stage to the end of the last backward pass. The backward pass launches from
-- threads of its own; without these, the time ends with the last message. `own_start_ns` and `own_end_ns`
-- enclose the work of the stage itself, which the optimizer follows.
-- @materialize
CREATE VIEW _stage_windows AS
WITH computed AS (
    SELECT
        s.job,
        s.group_id,
        s.stage,
        w.step,
        min(o.start_ns) FILTER (o.class = 'compute') AS start_ns,
        max(o.end_ns) FILTER (o.class = 'compute' AND o.tid != m.tid) AS backward_ns,
        max(o.end_ns) FILTER (g.op_id IS NOT NULL) AS message_ns
    FROM _stages AS s
    JOIN _ops AS o ON o.track = s.track AND o.pid = s.pid
    JOIN _step_windows AS w ON w.track = o.track AND w.window_id = o.window_id AND w.step IS NOT NULL
    SEMI JOIN _analysed AS a ON a.track = o.track AND a.window_id = o.window_id
    LEFT JOIN _main_threads AS m ON m.track = s.track AND m.pid = s.pid
    LEFT JOIN _group_ops AS g ON g.report_id = s.report_id AND g.op_id = o.op_id AND g.group_id = s.group_id
    GROUP BY s.job, s.group_id, s.stage, w.step
),
spans AS (
    SELECT
        c.job,
        c.group_id,
        c.step,
        min(c.start_ns + k.offset_ns) AS start_ns,
        coalesce(max(c.backward_ns + k.offset_ns), max(c.message_ns + k.offset_ns)) AS end_ns,
        bool_or(c.backward_ns IS NULL) AS cut
    FROM computed AS c
    JOIN _stages AS s USING (job, group_id, stage)
    JOIN _clocks AS k ON k.job = s.job AND k.report_id = s.report_id
    GROUP BY c.job, c.group_id, c.step, s.stages
    HAVING count(*) = s.stages
)
SELECT
    s.*,
    p.step,
    p.start_ns - k.offset_ns AS start_ns,
    p.end_ns - k.offset_ns AS end_ns,
    c.start_ns AS own_start_ns,
    coalesce(c.backward_ns, p.end_ns - k.offset_ns) AS own_end_ns,
    p.cut
FROM _stages AS s
JOIN spans AS p USING (job, group_id)
JOIN computed AS c ON c.job = s.job AND c.group_id = s.group_id AND c.stage = s.stage AND c.step = p.step
JOIN _clocks AS k ON k.job = s.job AND k.report_id = s.report_id
WHERE p.end_ns > p.start_ns;
