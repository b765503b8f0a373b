-- Messages between the stages of a pipeline in the order of their launches: towards the last stage (up), or
-- back. Messages far smaller than the largest are shapes, not activations; of tensors of a few sizes, the
-- largest counts.
-- @materialize
CREATE VIEW _stage_messages AS
WITH placed AS (
    SELECT
        s.job,
        s.group_id,
        s.stage,
        s.stages,
        t.stage AS peer,
        m.way,
        m.bytes,
        m.op_id,
        c.api_start_ns,
        w.step,
        if(m.way = 'send', s.stage, t.stage) AS source,
        if(m.way = 'send', t.stage, s.stage) AS target
    FROM _stages AS s
    JOIN _messages AS m ON m.job = s.job AND m.rank = s.rank AND m.analysed
    JOIN _stages AS t ON t.job = s.job AND t.group_id = s.group_id AND t.rank = m.peer
    JOIN _collectives AS c ON c.report_id = m.report_id AND c.op_id = m.op_id
    JOIN _step_windows AS w ON w.track = m.track AND w.window_id = m.window_id AND w.step IS NOT NULL
),
sizes AS (
    SELECT job, group_id, source, target, max(bytes) AS most, count(DISTINCT bytes) AS sizes
    FROM placed
    GROUP BY job, group_id, source, target
),
counted AS (
    SELECT p.*
    FROM placed AS p
    JOIN sizes AS z USING (job, group_id, source, target)
    WHERE p.bytes IS NULL
        OR p.bytes = z.most
        OR (
            z.sizes > threshold('pipeline.few_sizes')
            AND p.bytes >= threshold('pipeline.shape_share') * z.most
        )
)
SELECT DISTINCT
    job,
    group_id,
    stage,
    stages,
    step,
    way,
    source,
    target,
    op_id,
    api_start_ns,
    -- Chunks of a model on the first stage follow those on the last one.
    CASE
        WHEN target - source = 1 THEN 'up'
        WHEN source - target = 1 THEN 'back'
        WHEN source > target THEN 'up again'
        ELSE 'back again'
    END AS direction
FROM counted;
