-- Stages of each pipeline whose ranks were all captured, in the direction of its first messages: stage 0
-- sends first.
-- @materialize
CREATE VIEW _stages AS
WITH pipelines AS (
    SELECT
        g.job,
        g.group_id,
        g.size,
        unnest(g.members) AS rank,
        generate_subscripts(g.members, 1) - 1 AS place
    FROM rank_groups AS g
    WHERE g.kind = 'pipeline' AND g.captured = g.size AND g.operations = 'SendRecv'
),
sent AS (
    SELECT
        p.job,
        p.group_id,
        p.size,
        p.place,
        t.place AS target,
        m.start_ns + c.offset_ns AS at_ns,
        m.op_id,
        w.step
    FROM pipelines AS p
    JOIN _messages AS m ON m.job = p.job AND m.source = p.rank AND m.way = 'send' AND m.analysed
    JOIN pipelines AS t ON t.job = p.job AND t.group_id = p.group_id AND t.rank = m.target
    JOIN _clocks AS c ON c.job = m.job AND c.report_id = m.report_id
    JOIN _step_windows AS w ON w.track = m.track AND w.window_id = m.window_id
    WHERE abs(p.place - t.place) = 1
),
firsts AS (
    SELECT job, group_id, step, arg_min(place < target, (at_ns, place, op_id)) AS ascending
    FROM sent
    GROUP BY job, group_id, step
),
directions AS (
    SELECT job, group_id, 2 * count(*) FILTER (ascending) >= count(*) AS ascending
    FROM firsts
    GROUP BY job, group_id
)
SELECT
    p.job,
    p.group_id,
    p.rank,
    if(d.ascending, p.place, p.size - 1 - p.place) AS stage,
    p.size AS stages,
    r.report_id,
    r.track,
    r.device,
    r.pid
FROM pipelines AS p
JOIN directions AS d USING (job, group_id)
JOIN _job_ranks AS r ON r.job = p.job AND r.rank = p.rank;
