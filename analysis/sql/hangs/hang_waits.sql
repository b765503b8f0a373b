-- Calls in which ranks of a job wait, from dumps of PyTorch's flight recorder, and for whom. Each rank waits
-- in the first call that it has not finished; this assumes that it executes its calls in the order in which
-- it enqueued them.
--
-- report_id VARCHAR: report with the dumps
-- call VARCHAR: the call; the same on all ranks that take part
-- kind VARCHAR: why it does not end: mismatch (ranks call different operations, sizes or types), never
--   enqueued (a rank that waits nowhere did not enqueue it), deadlock (ranks wait for each other), behind
--   (other ranks wait in another call, or the batch of a send or receive does not end), no dump, partly
--   finished, not started (on the GPU of some ranks), running (it started on all ranks), enqueued (on all
--   ranks; starts were not recorded), or unknown peer (the dump has the end of a batch without its sends and
--   receives)
-- group_id BIGINT: process group
-- backend VARCHAR: library: nccl, gloo and others
-- group_name VARCHAR: what the program calls the group
-- operation VARCHAR: operation, such as all_reduce; batch for coalesced sends and receives
-- sequence BIGINT: number of the collective within the group; NULL for point-to-point operations
-- source BIGINT: rank that sends; NULL for collectives
-- target BIGINT: rank that receives; NULL for collectives
-- ranks BIGINT: number of ranks that take part
-- ranks_from VARCHAR: origin of the ranks: config (the dumps list them), calls (ranks with a call of the
--   group; others may exist), or operation (sender and receiver)
-- waiting BIGINT: number of ranks that wait in this call
-- waiting_ranks VARCHAR: these ranks
-- idle_ranks VARCHAR: ranks that did not enqueue the call, and wait in no other
-- elsewhere_ranks VARCHAR: ranks that wait in another call before this one
-- finished_ranks VARCHAR: ranks that have finished the call
-- unknown_ranks VARCHAR: ranks without a dump, or with one of active calls alone and no call of the group
-- started_ranks VARCHAR: waiting ranks on which the call has started; NULL if starts were not recorded
-- unstarted_ranks VARCHAR: waiting ranks on which the call has not started; NULL if starts were not recorded
-- since_ns BIGINT: time at which the first of the waiting ranks enqueued the call, ns
-- waited_s DOUBLE: time from then until the last modification of the dumps, s; NULL if the files were copied
--   without their times
-- timeout_ms BIGINT: timeout of the call, ms
-- site VARCHAR: line of the program that made the call, on the first of the waiting ranks; NULL without
--   stacks
-- cycle VARCHAR: first of the calls that wait for each other; NULL if there is no deadlock
-- older BOOLEAN: whether ranks may wait in an older call: this call is the oldest in a dump, and older calls
--   were overwritten
CREATE VIEW hang_waits AS
WITH placed AS (
    SELECT
        p.*,
        p.place = 'never' AND h.rank IS NULL AS idle,
        p.place = 'later' OR (p.place = 'never' AND h.rank IS NOT NULL) AS elsewhere,
        p.source IS NOT NULL AND held.rank IS NOT NULL AS held
    FROM _hang_places AS p
    LEFT JOIN (SELECT DISTINCT report_id, rank FROM _hang_heads) AS h
        ON h.report_id = p.report_id AND h.rank = p.rank
    LEFT JOIN _hang_held AS held ON held.report_id = p.report_id AND held.rank = p.rank
),
gathered AS (
    SELECT
        report_id,
        call,
        group_id,
        p2p,
        sequence,
        source,
        target,
        count(*) AS ranks,
        count(DISTINCT said) AS sayings,
        count(*) FILTER (place = 'at') AS waiting,
        bool_and(place = 'at') AND bool_or(held) AS held,
        bool_and(has_starts) FILTER (place = 'at') AS has_starts,
        coalesce(list(rank ORDER BY rank) FILTER (place = 'at'), []) AS at_ranks,
        coalesce(list(rank ORDER BY rank) FILTER (idle), []) AS idle,
        coalesce(list(rank ORDER BY rank) FILTER (elsewhere), []) AS elsewhere,
        coalesce(list(rank ORDER BY rank) FILTER (place = 'finished'), []) AS finished,
        coalesce(list(rank ORDER BY rank) FILTER (place = 'no dump'), []) AS unknown,
        coalesce(list(rank ORDER BY rank) FILTER (place = 'at' AND started), []) AS started,
        coalesce(list(rank ORDER BY rank) FILTER (place = 'at' AND NOT started), []) AS unstarted
    FROM placed
    GROUP BY report_id, call, group_id, p2p, sequence, source, target
),
begun AS (
    SELECT
        h.report_id,
        h.call,
        arg_min(h.operation, h.rank) AS operation,
        min(h.created_ns) AS since_ns,
        max(h.timeout_ms) AS timeout_ms,
        arg_min(h.stack_id, h.rank) AS stack_id,
        bool_or(d.first_record > 0 AND d.first_record = h.record_id) AS older
    FROM _hang_heads AS h
    JOIN hang_dumps AS d ON d.report_id = h.report_id AND d.rank = h.rank
    GROUP BY h.report_id, h.call
),
written AS (
    SELECT d.report_id, max(d.written_ns) AS written_ns, max(c.newest_ns) AS newest_ns
    FROM hang_dumps AS d
    JOIN (SELECT report_id, max(created_ns) AS newest_ns FROM _hang_units GROUP BY report_id) AS c
        ON c.report_id = d.report_id
    GROUP BY d.report_id
)
SELECT
    g.report_id,
    g.call,
    CASE
        WHEN g.p2p = 1 AND g.source IS NULL THEN 'unknown peer'
        WHEN g.sayings > 1 THEN 'mismatch'
        WHEN len(g.idle) > 0 THEN 'never enqueued'
        WHEN c.cycle IS NOT NULL THEN 'deadlock'
        WHEN len(g.elsewhere) > 0 OR g.held THEN 'behind'
        WHEN len(g.unknown) > 0 THEN 'no dump'
        WHEN len(g.finished) > 0 THEN 'partly finished'
        WHEN g.has_starts AND len(g.unstarted) > 0 THEN 'not started'
        WHEN g.has_starts THEN 'running'
        ELSE 'enqueued'
    END AS kind,
    g.group_id,
    o.backend,
    group_label(o.name, o.description) AS group_name,
    b.operation,
    CASE WHEN g.p2p = 0 THEN g.sequence END AS sequence,
    g.source,
    g.target,
    g.ranks,
    CASE WHEN g.p2p = 0 THEN o.source ELSE 'operation' END AS ranks_from,
    g.waiting,
    rank_ranges(g.at_ranks) AS waiting_ranks,
    nullif(rank_ranges(g.idle), '') AS idle_ranks,
    nullif(rank_ranges(g.elsewhere), '') AS elsewhere_ranks,
    nullif(rank_ranges(g.finished), '') AS finished_ranks,
    nullif(rank_ranges(g.unknown), '') AS unknown_ranks,
    CASE WHEN g.has_starts THEN nullif(rank_ranges(g.started), '') END AS started_ranks,
    CASE WHEN g.has_starts THEN nullif(rank_ranges(g.unstarted), '') END AS unstarted_ranks,
    b.since_ns,
    CASE
        WHEN w.written_ns BETWEEN w.newest_ns AND w.newest_ns + 1e9 * threshold('hangs.longest_wait_s')
            THEN (w.written_ns - b.since_ns) / 1e9
    END AS waited_s,
    b.timeout_ms,
    s.site,
    c.cycle,
    b.older
FROM gathered AS g
JOIN begun AS b ON b.report_id = g.report_id AND b.call = g.call
JOIN hang_groups AS o ON o.report_id = g.report_id AND o.group_id = g.group_id
JOIN written AS w ON w.report_id = g.report_id
LEFT JOIN _hang_cycles AS c ON c.report_id = g.report_id AND c.call = g.call
LEFT JOIN _hang_sites AS s ON s.report_id = g.report_id AND s.stack_id = b.stack_id
ORDER BY g.report_id, g.waiting DESC, b.since_ns, g.call;
