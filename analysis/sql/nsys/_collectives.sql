-- Communicating kernels with what NCCL's NVTX ranges tell of the call: communicator and bytes, where the export
-- holds payloads.  A group of calls that launched one kernel counts with all its bytes.
-- Computed once.
CREATE VIEW _collectives AS
WITH payloads AS (
    SELECT
        report_id,
        range_id,
        max(text) FILTER (field = 'NCCL communicator ID') AS communicator,
        max(value) FILTER (field = 'Message size [bytes]') AS bytes,
        max(value) FILTER (field = 'No. of ranks') AS ranks
    FROM nsys_nvtx_payloads
    GROUP BY report_id, range_id
),
sizes AS (
    -- Said when a communicator is made.
    SELECT report_id, communicator, max(ranks) AS ranks
    FROM payloads
    GROUP BY report_id, communicator
),
nccl AS (
    SELECT r.report_id, r.range_id, r.pid, r.tid, r.name, r.start_ns, p.communicator, p.bytes
    FROM nsys_nvtx_ranges AS r
    LEFT JOIN payloads AS p USING (report_id, range_id)
    WHERE r.domain = 'NCCL'
),
grouped AS (
    SELECT report_id, pid, tid, range_id, start_ns, max(start_ns) FILTER (name = 'ncclGroupStart') OVER earlier AS opened_ns
    FROM nccl
    WINDOW earlier AS (PARTITION BY report_id, pid, tid ORDER BY start_ns, range_id)
    QUALIFY name = 'ncclGroupEnd'
),
told AS (
    SELECT report_id, range_id, communicator, bytes, false AS grouped
    FROM nccl
    WHERE communicator IS NOT NULL
    UNION ALL
    SELECT g.report_id, g.range_id, min(n.communicator), sum(n.bytes), true
    FROM grouped AS g
    JOIN nccl AS n ON n.report_id = g.report_id AND n.pid = g.pid AND n.tid = g.tid
        AND n.start_ns > g.opened_ns AND n.start_ns < g.start_ns
    GROUP BY g.report_id, g.range_id
    HAVING count(DISTINCT n.communicator) = 1
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
    coalesce(nullif(collective_operation(l.name), ''), l.name) AS operation,
    p.communicator,
    CASE WHEN NOT p.grouped OR count(*) OVER (PARTITION BY l.report_id, l.range_id) = 1 THEN p.bytes END::BIGINT AS bytes,
    s.ranks::BIGINT AS ranks
FROM _ops AS o
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = o.op_id
LEFT JOIN told AS p ON p.report_id = l.report_id AND p.range_id = l.range_id
LEFT JOIN sizes AS s ON s.report_id = p.report_id AND s.communicator = p.communicator
WHERE o.class = 2;
