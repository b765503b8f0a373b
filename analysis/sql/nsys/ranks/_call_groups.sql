-- Members of each group of calls that launches one kernel: ncclGroupStart to ncclGroupEnd, or what torch
-- coalesced.
-- @materialize
CREATE VIEW _call_groups AS
WITH grouped AS (
    -- A group consists of all calls since it was opened; in torch, of all calls since the last call that
    -- launched its own kernel.
    SELECT
        report_id, pid, tid, range_id, start_ns,
        coalesce(
            max(
                CASE
                    WHEN call = 'ncclGroupStart' OR call = 'nccl:coalesced' OR launched > 0 THEN start_ns
                END
            ) OVER earlier,
            CASE WHEN call = 'nccl:coalesced' THEN -9223372036854775808 END
        ) AS opened_ns
    FROM _distributed_calls
    WINDOW earlier AS (
        PARTITION BY report_id, pid, tid
        ORDER BY start_ns, range_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY call IN ('ncclGroupEnd', 'nccl:coalesced')
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
