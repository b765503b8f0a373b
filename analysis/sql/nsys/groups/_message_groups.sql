-- Ranks that exchange messages with each other, directly or through others, and the pattern of the messages:
-- ring (each rank sends and receives at the same time, around all ranks, or messages precede attention),
-- chain (neighbors send as many messages in one direction as in the other, as the stages of a pipeline do),
-- line (in one direction only) or other. torch gives each pair of ranks a communicator in NCCL; pairs of one
-- pattern belong together.
-- @materialize
CREATE VIEW _message_groups AS
WITH RECURSIVE kernels AS (
    SELECT
        m.job, m.rank, m.report_id, m.op_id, m.communicator, count(DISTINCT m.way) = 2 AS both_ways,
        any_value(n.attends) AS attends
    FROM _messages AS m
    LEFT JOIN _next_kernels AS n USING (report_id, op_id)
    GROUP BY m.job, m.rank, m.report_id, m.op_id, m.communicator
),
families AS (
    SELECT
        k.job,
        k.communicator,
        bool_and(k.both_ways)
            OR count(*) FILTER (k.attends) >= threshold('groups.main_share') * count(*) AS around,
        CASE
            WHEN c.ranks = 2 AND NOT c.stated THEN if(around, 'rings', 'pairs')
            ELSE coalesce(k.communicator, '')
        END AS family
    FROM kernels AS k
    JOIN _communicators AS c USING (job, communicator)
    GROUP BY k.job, k.communicator, c.ranks, c.stated
),
edges AS (
    SELECT
        m.job, f.family, m.source, m.target, bool_and(f.around) AS around,
        count(*) FILTER (m.analysed AND m.way = 'send') AS sent,
        count(*) FILTER (m.analysed AND m.way = 'receive') AS received
    FROM _messages AS m
    JOIN families AS f USING (job, communicator)
    GROUP BY m.job, f.family, m.source, m.target
),
reached (job, family, rank, other) AS (
    SELECT job, family, source, target FROM edges
    UNION
    SELECT job, family, target, source FROM edges
    UNION
    SELECT r.job, r.family, r.rank, e.rank
    FROM reached AS r
    JOIN (
        SELECT job, family, source AS other, target AS rank FROM edges
        UNION ALL
        SELECT job, family, target, source FROM edges
    ) AS e USING (job, family, other)
),
members AS (
    SELECT job, family, rank, list_sort(list(other)) AS ranks
    FROM reached
    GROUP BY job, family, rank
),
placed AS (
    SELECT
        e.job,
        e.family,
        m.ranks,
        e.around,
        e.source,
        e.target,
        list_position(m.ranks, e.source) AS place,
        list_position(m.ranks, e.target) AS next,
        -- One side may not have been captured.
        greatest(e.sent, e.received) = greatest(b.sent, b.received) AS answered
    FROM edges AS e
    JOIN members AS m ON m.job = e.job AND m.family = e.family AND m.rank = e.source
    LEFT JOIN edges AS b
        ON b.job = e.job AND b.family = e.family AND b.source = e.target AND b.target = e.source
),
patterns AS (
    SELECT
        job,
        family,
        ranks,
        CASE
            WHEN NOT bool_and(abs(next - place) IN (1, len(ranks) - 1)) THEN 'other'
            WHEN bool_and(around) AND (len(ranks) = 2 OR bool_or(abs(next - place) = len(ranks) - 1))
                THEN 'ring'
            WHEN bool_and(coalesce(answered, false)) THEN 'chain'
            WHEN bool_and(answered IS NULL) THEN 'line'
            ELSE 'other'
        END AS pattern
    FROM placed
    GROUP BY job, family, ranks
)
SELECT p.*, f.communicator
FROM patterns AS p
JOIN families AS f USING (job, family);
