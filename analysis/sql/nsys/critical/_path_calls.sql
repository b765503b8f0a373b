-- CUDA calls of the processes on the GPUs of _path_gpus, on the job's clock, with what they wait for: the
-- work that a stream had been given at a time. `blocks` calls wait on the host, `orders` calls let a stream
-- wait.
CREATE VIEW _path_calls AS
WITH processes AS (
    SELECT DISTINCT g.job, g.role, g.report_id, t.pid, g.offset_ns, g.read_from_ns, g.read_until_ns
    FROM _path_gpus AS g
    JOIN _tracks AS t USING (track)
),
names AS (
    SELECT name, is_synchronising(name) AS blocks, is_loading(name) AS loads
    FROM _names
    WHERE kind = 'api'
),
waits AS (
    SELECT
        s.report_id, s.pid, s.correlation_id, s.type,
        s.stream AS waiting_stream,
        if(s.type = 'Stream sync', s.stream, e.stream) AS awaited_stream,
        r.start_ns AS recorded_ns
    FROM nsys_syncs AS s
    LEFT JOIN nsys_cuda_events AS e
        ON e.report_id = s.report_id AND e.pid = s.pid AND e.event_sync_id = s.event_sync_id
    LEFT JOIN nsys_api_calls AS r
        ON r.report_id = e.report_id AND r.pid = e.pid AND r.correlation_id = e.correlation_id
    QUALIFY row_number() OVER (PARTITION BY s.report_id, s.pid, s.correlation_id ORDER BY s.start_ns) = 1
)
SELECT
    p.job,
    p.role,
    c.report_id,
    c.pid,
    c.tid,
    c.name,
    c.start_ns + p.offset_ns AS start_ns,
    coalesce(c.end_ns, c.start_ns) + p.offset_ns AS end_ns,
    n.blocks,
    n.loads,
    coalesce(w.type = 'Stream wait sync', false) AS orders,
    w.waiting_stream,
    w.awaited_stream,
    coalesce(w.recorded_ns, c.start_ns) + p.offset_ns AS recorded_ns
FROM processes AS p
JOIN nsys_api_calls AS c
    ON c.report_id = p.report_id AND c.pid = p.pid
        AND c.start_ns <= p.read_until_ns AND c.end_ns >= p.read_from_ns
JOIN names AS n ON n.name = c.name
LEFT JOIN waits AS w
    ON w.report_id = c.report_id AND w.pid = c.pid AND w.correlation_id = c.correlation_id
ORDER BY p.job, p.role, start_ns, end_ns DESC, c.report_id, c.tid;
