-- Messages that each rank sends and receives, with the kernel that carries them and the rank of the peer. A
-- peer that NCCL numbers within the communicator is known if all of its ranks are. On both sides, the n-th
-- message from one rank to another in a communicator is the same message.
-- @materialize
CREATE VIEW _messages AS
WITH kernels AS (
    SELECT r.job, r.rank, c.*
    FROM _collectives AS c
    JOIN _job_ranks AS r USING (report_id, track, pid)
    WHERE c.operation = 'SendRecv' AND c.range_id IS NOT NULL
),
calls AS (
    SELECT report_id, range_id, member, communicator, bytes, peer, stated, way
    FROM _call_groups
    WHERE way != 'all'
    UNION ALL
    SELECT
        c.report_id, c.range_id, c.range_id, c.communicator, c.bytes, c.peer, c.stated,
        if(c.call IN ('ncclSend', 'send'), 'send', 'receive')
    FROM _distributed_calls AS c
    WHERE c.call IN ('ncclSend', 'ncclRecv', 'send', 'recv')
    UNION ALL
    -- torch launches from an annotation within the call.
    SELECT
        c.report_id, r.range_id, c.range_id, c.communicator, c.bytes, c.peer, c.stated,
        if(c.call = 'send', 'send', 'receive')
    FROM _distributed_calls AS c
    JOIN nsys_nvtx_ranges AS r ON r.report_id = c.report_id AND r.enclosing = c.range_id
    WHERE c.call IN ('send', 'recv') AND c.launched > 0 AND r.name LIKE 'nccl:%'
),
known AS (
    SELECT
        k.job,
        k.rank,
        k.report_id,
        k.track,
        k.device,
        k.op_id,
        k.start_ns,
        k.end_ns,
        k.window_id,
        k.analysed,
        k.settled,
        c.member,
        c.communicator,
        c.bytes::BIGINT AS bytes,
        c.way,
        if(c.stated, c.peer, m.members[c.peer + 1]) AS peer
    FROM kernels AS k
    JOIN calls AS c USING (report_id, range_id)
    LEFT JOIN _communicators AS m ON m.job = k.job AND m.communicator = c.communicator
)
SELECT
    *,
    if(way = 'send', rank, peer) AS source,
    if(way = 'send', peer, rank) AS target,
    row_number() OVER (
        PARTITION BY job, rank, communicator, way, peer ORDER BY start_ns, op_id, member
    ) AS nth
FROM known
WHERE peer IS NOT NULL AND peer != rank;
