-- Ranks of a job whose flight recorder was dumped: where each rank waits, and its last call.
--
-- report_id VARCHAR: report with the dumps
-- rank BIGINT: rank
-- state VARCHAR: waits (in a call that is not finished), idle (all of its calls are finished; others wait for
--   it, or it may have ended), or no dump
-- call VARCHAR: call in which the rank waits, as in hang_waits; of a batch of sends and receives, the first
-- waits_in VARCHAR: this call in words
-- group_name VARCHAR: process group of this call
-- waits_at VARCHAR: line of the program that made this call; NULL without stacks
-- since_ns BIGINT: time at which the rank enqueued this call, ns
-- unfinished BIGINT: number of calls of the rank that are not finished
-- last_call VARCHAR: last call that the rank enqueued, in words
-- last_group VARCHAR: process group of the last call
-- last_site VARCHAR: line of the program that made the last call; NULL without stacks
-- last_ns BIGINT: time at which the rank enqueued the last call, ns
-- calls BIGINT: number of calls in the dump
-- overwritten BIGINT: number of older calls, which are no longer in the dump
CREATE VIEW hang_ranks AS
WITH known AS (
    SELECT report_id, rank FROM hang_members
    UNION
    SELECT report_id, rank FROM hang_dumps
),
heads AS (
    FROM _hang_heads
    QUALIFY row_number() OVER (PARTITION BY report_id, rank ORDER BY call) = 1
),
last_calls AS (
    FROM hang_calls
    QUALIFY row_number() OVER (
        PARTITION BY report_id, rank ORDER BY operation = 'coalesced', record_id DESC
    ) = 1
),
unfinished AS (
    SELECT report_id, rank, count(*) FILTER (NOT finished) AS unfinished
    FROM _hang_units
    GROUP BY report_id, rank
)
SELECT
    k.report_id,
    k.rank,
    CASE WHEN d.rank IS NULL THEN 'no dump' WHEN h.rank IS NULL THEN 'idle' ELSE 'waits' END AS state,
    h.call,
    CASE WHEN h.rank IS NOT NULL
        THEN call_label(h.operation, h.sequence, k.rank, h.source, h.target)
    END AS waits_in,
    group_label(hg.name, hg.description) AS group_name,
    hs.site AS waits_at,
    h.created_ns AS since_ns,
    CASE WHEN d.rank IS NOT NULL THEN coalesce(u.unfinished, 0) END AS unfinished,
    CASE WHEN l.rank IS NOT NULL
        THEN call_label(l.operation, l.sequence, k.rank, l.source, l.target)
    END AS last_call,
    group_label(lg.name, lg.description) AS last_group,
    ls.site AS last_site,
    l.created_ns AS last_ns,
    d.calls,
    CASE WHEN d.rank IS NOT NULL THEN coalesce(d.first_record, 0) END AS overwritten
FROM known AS k
LEFT JOIN hang_dumps AS d ON d.report_id = k.report_id AND d.rank = k.rank
LEFT JOIN heads AS h ON h.report_id = k.report_id AND h.rank = k.rank
LEFT JOIN hang_groups AS hg ON hg.report_id = h.report_id AND hg.group_id = h.group_id
LEFT JOIN _hang_sites AS hs ON hs.report_id = h.report_id AND hs.stack_id = h.stack_id
LEFT JOIN unfinished AS u ON u.report_id = k.report_id AND u.rank = k.rank
LEFT JOIN last_calls AS l ON l.report_id = k.report_id AND l.rank = k.rank
LEFT JOIN hang_groups AS lg ON lg.report_id = l.report_id AND lg.group_id = l.group_id
LEFT JOIN _hang_sites AS ls ON ls.report_id = l.report_id AND ls.stack_id = l.stack_id
ORDER BY k.report_id, k.rank;
