-- Communication kernels in the analyzed window with their group of ranks: the communicator of a collective,
-- or the ranks that exchange messages.
-- @materialize
CREATE VIEW _group_ops AS
WITH messages AS (
    SELECT
        m.report_id,
        m.op_id,
        any_value(g.ranks ORDER BY g.ranks) AS ranks
    FROM (SELECT DISTINCT job, rank, report_id, op_id, communicator FROM _messages) AS m
    JOIN _message_groups AS g
        ON g.job = m.job AND g.communicator = m.communicator AND list_contains(g.ranks, m.rank)
    GROUP BY m.report_id, m.op_id
)
SELECT
    r.job,
    r.rank,
    c.report_id,
    c.track,
    c.device,
    c.op_id,
    c.start_ns,
    c.end_ns,
    c.dur_ns,
    c.operation,
    c.communicator,
    c.bytes,
    c.ranks AS participants,
    c.window_id,
    CASE
        WHEN m.ranks IS NOT NULL THEN concat('messages between ', ranks_text(m.ranks))
        ELSE coalesce(c.communicator, 'unknown')
    END AS group_id,
    m.ranks AS message_ranks,
    p.phase,
    n.attends
FROM _collectives AS c
JOIN _job_ranks AS r USING (report_id, track, pid)
LEFT JOIN messages AS m ON m.report_id = c.report_id AND m.op_id = c.op_id
LEFT JOIN _group_phases AS p ON p.report_id = c.report_id AND p.op_id = c.op_id
LEFT JOIN _next_kernels AS n ON n.report_id = c.report_id AND n.op_id = c.op_id
WHERE c.analysed AND coalesce(c.ranks, 2) > 1;
