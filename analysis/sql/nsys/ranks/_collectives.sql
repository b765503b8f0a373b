-- Communication kernels with the known properties of their calls. A group of calls that launched one kernel
-- counts with all its bytes. `analysed` marks kernels that begin in the analyzed window.
-- @materialize
CREATE VIEW _collectives AS
WITH payloads AS (
    SELECT
        report_id,
        range_id,
        max(text) FILTER (field IN ('NCCL communicator ID', 'Process Group Name')) AS communicator,
        max(value) FILTER (field IN ('No. of ranks', 'Group size')) AS ranks,
        max(value) FILTER (field = 'Message size [bytes]') AS bytes,
        max(text) FILTER (field = 'Collective name') AS torch_call,
        torch_element_bytes(max(text) FILTER (field = 'dtype')) AS element_bytes,
        max(value) FILTER (field = 'In msg nelems') AS elements_in,
        max(value) FILTER (field = 'Out msg nelems') AS elements_out
    FROM nsys_nvtx_payloads
    GROUP BY report_id, range_id
),
sizes AS (
    -- Recorded when a communicator is created, or at each call.
    SELECT report_id, communicator, max(ranks) AS ranks
    FROM payloads
    GROUP BY report_id, communicator
),
calls AS (
    SELECT
        r.report_id,
        r.range_id,
        r.pid,
        r.tid,
        r.start_ns,
        r.name AS call,
        p.communicator,
        p.bytes,
        NULL AS launched
    FROM nsys_nvtx_ranges AS r
    LEFT JOIN payloads AS p USING (report_id, range_id)
    WHERE r.domain = 'NCCL'
    UNION ALL
    -- As NCCL counts: the bytes that one rank contributes or receives; to one peer if each rank sends to all.
    SELECT
        r.report_id, r.range_id, r.pid, r.tid, r.start_ns, p.torch_call, p.communicator,
        p.element_bytes * CASE
            WHEN p.torch_call LIKE 'all_to_all%' THEN p.elements_in / p.ranks
            ELSE least(p.elements_in, p.elements_out)
        END,
        r.gpu_calls
    FROM payloads AS p
    JOIN nsys_nvtx_ranges AS r USING (report_id, range_id)
    WHERE p.torch_call IS NOT NULL
    UNION ALL
    SELECT report_id, range_id, pid, tid, start_ns, name, NULL, NULL, NULL
    FROM nsys_nvtx_ranges
    WHERE name = 'nccl:coalesced'
),
grouped AS (
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
    FROM calls
    WINDOW earlier AS (
        PARTITION BY report_id, pid, tid
        ORDER BY start_ns, range_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY call IN ('ncclGroupEnd', 'nccl:coalesced')
),
members AS (
    SELECT
        g.report_id,
        g.range_id,
        c.communicator,
        c.bytes,
        CASE
            WHEN c.call IN ('ncclSend', 'send') THEN 'send'
            WHEN c.call IN ('ncclRecv', 'recv') THEN 'receive'
            ELSE 'all'
        END AS way
    FROM grouped AS g
    JOIN calls AS c ON c.report_id = g.report_id AND c.pid = g.pid AND c.tid = g.tid
        AND c.start_ns > g.opened_ns AND c.start_ns < g.start_ns
),
ways AS (
    SELECT
        report_id,
        range_id,
        way,
        min(communicator) AS communicator,
        max(communicator) AS other,
        ordered_sum(bytes) AS bytes
    FROM members
    WHERE communicator IS NOT NULL
    GROUP BY report_id, range_id, way
),
named AS (
    SELECT report_id, range_id, call, communicator, bytes, false AS grouped
    FROM calls
    WHERE communicator IS NOT NULL
    UNION ALL
    -- torch launches from an annotation within the call.
    SELECT c.report_id, r.range_id, c.call, c.communicator, c.bytes, true
    FROM calls AS c
    JOIN nsys_nvtx_ranges AS r ON r.report_id = c.report_id AND r.enclosing = c.range_id
    WHERE c.launched > 0 AND r.name LIKE 'nccl:%'
    UNION ALL
    -- Send and receive use both directions at the same time.
    SELECT
        report_id,
        range_id,
        NULL,
        min(communicator),
        coalesce(sum(bytes ORDER BY bytes) FILTER (way = 'all'), 0)
            + coalesce(max(bytes) FILTER (way != 'all'), 0),
        true
    FROM ways
    GROUP BY report_id, range_id
    HAVING min(communicator) = max(other)
),
-- Known properties of communication calls: from NCCL's NVTX ranges if the export has their payloads, or from
-- torch.distributed in a torch.profiler trace.
collective_calls AS (
    SELECT t.*, s.ranks
    FROM named AS t
    LEFT JOIN sizes AS s USING (report_id, communicator)
),
-- Names of the calls in torch's annotations, which every version of torch.profiler records.
annotated AS (
    SELECT report_id, range_id, name
    FROM nsys_nvtx_ranges
    WHERE name IN (SELECT name FROM _names WHERE kind = 'range' AND starts_with(name, 'nccl:'))
),
annotations AS (
    SELECT * FROM annotated
    UNION ALL
    SELECT r.report_id, r.range_id, a.name
    FROM nsys_nvtx_ranges AS r
    JOIN annotated AS a ON a.report_id = r.report_id AND a.range_id = r.enclosing
    WHERE r.domain = 'NCCL'
)
SELECT
    l.report_id,
    o.track,
    t.device,
    l.pid,
    l.op_id,
    l.start_ns,
    l.end_ns,
    l.end_ns - l.start_ns AS dur_ns,
    l.name AS kernel_name,
    -- RCCL has one kernel for all operations.
    coalesce(
        collective_of_call(p.call),
        collective_of_call(n.name),
        nullif(collective_operation(l.name), ''),
        nullif(collective_operation(coalesce(p.call, n.name)), ''),
        l.name
    ) AS operation,
    p.communicator,
    CASE
        WHEN NOT p.grouped OR count(*) OVER (PARTITION BY l.report_id, l.range_id) = 1 THEN nullif(p.bytes, 0)
    END::BIGINT AS bytes,
    p.ranks::BIGINT AS ranks,
    a.window_id IS NOT NULL AS analysed
FROM _ops AS o
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = o.op_id
LEFT JOIN collective_calls AS p ON p.report_id = l.report_id AND p.range_id = l.range_id
LEFT JOIN annotations AS n ON n.report_id = l.report_id AND n.range_id = l.range_id
LEFT JOIN _analysed AS a ON a.track = o.track AND a.window_id = o.window_id
WHERE o.class = 'communication';
