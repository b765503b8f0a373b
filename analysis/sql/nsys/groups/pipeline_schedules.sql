-- Schedule of each pipeline as its messages show it, its bubble, and the bubble of an ideal pipeline with the
-- same number of stages, microbatches and chunks: (p - 1) / (m v + p - 1). Sources: GPipe,
-- https://arxiv.org/abs/1811.06965, section 2.3; interleaved stages, https://arxiv.org/abs/2104.04473,
-- section 2.2. The formula assumes equal stages and instant messages; schedules that split the backward pass
-- have smaller bubbles.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- group_id VARCHAR: pipeline, as in rank_groups
-- ranks VARCHAR: ranks of the stages in ascending order
-- stages BIGINT: number of stages (p)
-- microbatches BIGINT: number of microbatches per step (m); NULL if the counts of messages disagree
-- chunks BIGINT: number of model chunks per stage (v); NULL if microbatches is NULL
-- schedule VARCHAR: 1F1B, GPipe, interleaved (several chunks per stage), GPipe or 1F1B (both have this
--   order), forward only (no messages go back) or other
-- bubble_pct DOUBLE: bubble as a percentage of the time in which the microbatches pass, mean of the stages
-- ideal_pct DOUBLE: bubble of the ideal pipeline, %; NULL if microbatches is NULL
-- least_pct DOUBLE: smallest bubble of a stage, as a percentage of the step
-- slowest_stage BIGINT: stage with the most work
-- slowest_rank BIGINT: rank of the stage with the most work
-- imbalance DOUBLE: work of the slowest stage relative to the mean of the stages
-- excess_ns DOUBLE: work of the slowest stage beyond the mean, per step, ns
CREATE VIEW pipeline_schedules AS
WITH counts AS (
    SELECT job, group_id, source, direction, step, count(*) AS messages
    FROM _stage_messages
    WHERE way = 'send'
    GROUP BY job, group_id, source, direction, step
),
totals AS (
    SELECT
        job,
        group_id,
        min(messages) FILTER (direction = 'up') AS up,
        count(DISTINCT messages) FILTER (direction = 'up') = 1
            AND count(DISTINCT messages) FILTER (direction IN ('back', 'up')) = 1
            AND count(DISTINCT messages) FILTER (direction IN ('up again', 'back again')) <= 1 AS alike,
        coalesce(min(messages) FILTER (direction = 'up again'), 0) AS again,
        count(*) FILTER (direction = 'back') > 0 AS returns
    FROM counts
    GROUP BY job, group_id
),
firsts AS (
    SELECT
        job,
        group_id,
        stage,
        step,
        -- The last stage only sends back; the others first receive.
        min(api_start_ns) FILTER (
            direction = 'back' AND way = if(stage = stages - 1, 'send', 'receive')
        ) AS back_ns
    FROM _stage_messages
    GROUP BY job, group_id, stage, step
),
leads AS (
    SELECT
        m.job,
        m.group_id,
        m.stage,
        m.stages,
        m.step,
        -- Stage 0 receives no activations; one kernel may send the last one and receive the first gradient.
        count(*) FILTER (
            m.direction = 'up'
            AND m.way = if(m.stage = 0, 'send', 'receive')
            AND m.api_start_ns < f.back_ns + if(m.stage = 0, 1, 0)
        ) AS lead
    FROM _stage_messages AS m
    JOIN firsts AS f USING (job, group_id, stage, step)
    GROUP BY m.job, m.group_id, m.stage, m.stages, m.step
),
orders AS (
    SELECT
        l.job,
        l.group_id,
        bool_and(l.lead = t.up) AS all_first,
        bool_and(l.lead = least(t.up, l.stages - l.stage)) AS alternating
    FROM leads AS l
    JOIN totals AS t USING (job, group_id)
    GROUP BY l.job, l.group_id
),
times AS (
    SELECT
        job,
        group_id,
        count(*) AS stages,
        sum(bubble_pct ORDER BY stage) / count(*) AS bubble_pct,
        min(step_pct) AS least_pct,
        arg_max(stage, (work_ns, -stage)) AS slowest_stage,
        arg_max(rank, (work_ns, -stage)) AS slowest_rank,
        max(work_ns) AS most_ns,
        sum(work_ns ORDER BY stage) / count(*) AS mean_ns
    FROM pipeline_stages
    GROUP BY job, group_id
)
SELECT
    s.job,
    s.group_id,
    g.ranks,
    s.stages,
    if(t.alike, t.up - t.again, NULL)::BIGINT AS microbatches,
    if(t.alike, t.up // nullif(t.up - t.again, 0), NULL)::BIGINT AS chunks,
    CASE
        WHEN NOT t.returns THEN 'forward only'
        WHEN t.again > 0 THEN 'interleaved'
        WHEN o.all_first AND o.alternating THEN 'GPipe or 1F1B'
        WHEN o.all_first THEN 'GPipe'
        WHEN o.alternating THEN '1F1B'
        ELSE 'other'
    END AS schedule,
    s.bubble_pct,
    if(t.alike AND t.returns, 100.0 * (s.stages - 1) / (t.up + s.stages - 1), NULL) AS ideal_pct,
    s.least_pct,
    s.slowest_stage,
    s.slowest_rank,
    s.most_ns / nullif(s.mean_ns, 0) AS imbalance,
    s.most_ns - s.mean_ns AS excess_ns
FROM times AS s
JOIN rank_groups AS g USING (job, group_id)
LEFT JOIN totals AS t USING (job, group_id)
LEFT JOIN orders AS o USING (job, group_id)
ORDER BY s.job, s.group_id;
