-- Communication kernels with the known properties of their calls. A group of calls that launched one kernel
-- counts with all its bytes. `analysed` marks kernels that begin in the analyzed window, `settled` those that
-- begin in a window of which lateness is known (_settled).
-- @materialize
CREATE VIEW _collectives AS
WITH sizes AS (
    -- Recorded when a communicator is created, or at each call.
    SELECT report_id, communicator, max(ranks) AS ranks
    FROM _distributed_calls
    GROUP BY report_id, communicator
),
ways AS (
    SELECT
        report_id,
        range_id,
        way,
        min(communicator) AS communicator,
        max(communicator) AS other,
        count(DISTINCT peer) AS peers,
        ordered_sum(bytes) AS bytes
    FROM _call_groups
    WHERE communicator IS NOT NULL
    GROUP BY report_id, range_id, way
),
-- Send and receive use both directions at the same time. A group that sends to all ranks, or to more than
-- the two neighbors of a rank, and receives from as many is an all-to-all.
summed AS (
    SELECT
        w.report_id,
        w.range_id,
        min(w.communicator) AS communicator,
        coalesce(sum(bytes ORDER BY bytes) FILTER (way = 'all'), 0)
            + coalesce(max(bytes) FILTER (way != 'all'), 0) AS bytes,
        (max(bytes) FILTER (way = 'send'))::BIGINT AS sent_bytes,
        (max(bytes) FILTER (way = 'receive'))::BIGINT AS received_bytes,
        count(*) = 2
            AND count(*) FILTER (way != 'all' AND (peers >= 3 OR coalesce(peers = s.ranks, false))) = 2
            AS all_to_all
    FROM ways AS w
    LEFT JOIN sizes AS s USING (report_id, communicator)
    GROUP BY w.report_id, w.range_id
    HAVING min(w.communicator) = max(w.other)
),
named AS (
    SELECT
        report_id, range_id, call, communicator, bytes, sent_bytes, received_bytes, rows_out, false AS grouped
    FROM _distributed_calls
    WHERE communicator IS NOT NULL
    UNION ALL
    -- torch launches from an annotation within the call.
    SELECT
        c.report_id, r.range_id, c.call, c.communicator, c.bytes, c.sent_bytes, c.received_bytes, c.rows_out,
        true
    FROM _distributed_calls AS c
    JOIN nsys_nvtx_ranges AS r ON r.report_id = c.report_id AND r.enclosing = c.range_id
    WHERE c.launched > 0 AND r.name LIKE 'nccl:%'
    UNION ALL
    SELECT
        report_id,
        range_id,
        if(all_to_all, 'all_to_all', NULL),
        communicator,
        if(all_to_all, bytes / s.ranks, bytes),
        if(all_to_all, sent_bytes, NULL),
        if(all_to_all, received_bytes, NULL),
        NULL,
        true
    FROM summed
    LEFT JOIN sizes AS s USING (report_id, communicator)
),
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
    p.sent_bytes,
    p.received_bytes,
    p.rows_out,
    l.range_id,
    l.tid,
    l.api_start_ns,
    o.window_id,
    a.window_id IS NOT NULL AS analysed,
    s.window_id IS NOT NULL AS settled
FROM _ops AS o
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = o.op_id
LEFT JOIN collective_calls AS p ON p.report_id = l.report_id AND p.range_id = l.range_id
LEFT JOIN annotations AS n ON n.report_id = l.report_id AND n.range_id = l.range_id
LEFT JOIN _analysed AS a ON a.track = o.track AND a.window_id = o.window_id
LEFT JOIN _settled AS s ON s.track = o.track AND s.window_id = o.window_id
WHERE o.class = 'communication';
