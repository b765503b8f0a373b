-- Members of each group of calls that launches one kernel: ncclGroupStart to ncclGroupEnd, or what torch
-- coalesced.
-- @materialize
CREATE VIEW _call_groups AS
WITH nested AS (
    -- Groups may be nested: a start and its end have the same level.
    SELECT
        *,
        sum(CASE call WHEN 'ncclGroupStart' THEN 1 ELSE -1 END) OVER (
            PARTITION BY report_id, pid, tid
            ORDER BY start_ns, range_id
            ROWS UNBOUNDED PRECEDING
        ) + if(call = 'ncclGroupEnd', 1, 0) AS level
    FROM _distributed_calls
    WHERE call IN ('ncclGroupStart', 'ncclGroupEnd')
),
grouped AS (
    SELECT
        report_id, pid, tid, range_id, start_ns,
        max(CASE WHEN call = 'ncclGroupStart' THEN start_ns END) OVER (
            PARTITION BY report_id, pid, tid, level
            ORDER BY start_ns, range_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS opened_ns
    FROM nested
    QUALIFY call = 'ncclGroupEnd'
    UNION ALL
    -- In torch, all calls since the last call that launched its own kernel.
    SELECT
        report_id, pid, tid, range_id, start_ns,
        coalesce(
            max(CASE WHEN call = 'nccl:coalesced' OR launched > 0 THEN start_ns END) OVER (
                PARTITION BY report_id, pid, tid
                ORDER BY start_ns, range_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            -9223372036854775808
        )
    FROM _distributed_calls
    QUALIFY call = 'nccl:coalesced'
)
SELECT
    g.report_id,
    g.range_id,
    c.range_id AS member,
    c.communicator,
    c.bytes,
    c.peer,
    c.stated,
    CASE
        WHEN c.call IN ('ncclSend', 'send') THEN 'send'
        WHEN c.call IN ('ncclRecv', 'recv') THEN 'receive'
        ELSE 'all'
    END AS way
FROM grouped AS g
JOIN _distributed_calls AS c ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid
    AND c.start_ns > g.opened_ns AND c.start_ns < g.start_ns;
