-- Peak memory use of each GPU according to device_memory, and what the program was doing at the peak.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- peak_bytes BIGINT: peak memory in use, bytes
-- peak_ns BIGINT: host time at which the peak was first reached, ns
-- step VARCHAR: step that the host was launching at the peak; NULL outside steps
-- nvtx_path VARCHAR: NVTX ranges that were open at the peak on the allocating thread (on the main thread
--   if the allocating thread had none), outermost first; NULL if no range was open
-- reserved_bytes BIGINT: peak reserved memory on the GPU, bytes; NULL if not recorded
-- memory_bytes BIGINT: total memory of the GPU, bytes; NULL if the report does not contain it
-- peak_pct DOUBLE: reserved_bytes as a percentage of memory_bytes; peak_bytes is used if reserved_bytes is
--   NULL
-- last_bytes BIGINT: memory in use after the last change, bytes
-- allocations BIGINT: number of recorded allocations
CREATE VIEW device_memory_peak AS
WITH summed AS (
    SELECT
        report_id,
        device,
        max(reserved_bytes) AS reserved_bytes,
        arg_max(total_bytes, time_ns) AS last_bytes
    FROM device_memory
    GROUP BY report_id, device
),
counted AS (
    SELECT report_id, device, count(*) FILTER (delta > 0) AS allocations
    FROM _memory_changes
    GROUP BY report_id, device
),
peaks AS (
    SELECT
        report_id, device, max(total_bytes) AS peak_bytes,
        arg_max(time_ns, (total_bytes, -time_ns)) AS peak_ns
    FROM device_memory
    GROUP BY report_id, device
),
allocated AS (
    SELECT
        p.report_id, p.device, p.peak_bytes, p.peak_ns,
        arg_max(struct_pack(pid := c.process_id, tid := c.tid, call := c.correlation_id), c.delta) AS by
    FROM peaks AS p
    JOIN _memory_changes AS c
        ON c.report_id = p.report_id AND c.device IS NOT DISTINCT FROM p.device AND c.time_ns = p.peak_ns
    GROUP BY p.report_id, p.device, p.peak_bytes, p.peak_ns
),
-- First time of each GPU's peak memory use, with the process and thread that allocated there.
memory_places AS (
    SELECT
        a.report_id, a.device, a.peak_bytes, a.peak_ns, a.by.pid AS pid,
        coalesce(a.by.tid, min(c.tid)) AS tid
    FROM allocated AS a
    LEFT JOIN nsys_api_calls AS c
        ON c.report_id = a.report_id AND c.pid = a.by.pid AND c.correlation_id = a.by.call
        AND c.api IN ('runtime', 'driver')
    GROUP BY a.report_id, a.device, a.peak_bytes, a.peak_ns, a.by
),
around AS (
    SELECT
        p.report_id, p.device, r.tid = p.tid AS own,
        string_agg(r.name, ' > ' ORDER BY r.start_ns, r.end_ns DESC, r.range_id) AS path
    FROM memory_places AS p
    JOIN nsys_nvtx_ranges AS r
        ON r.report_id = p.report_id AND r.pid = p.pid AND r.tid IN (p.tid, p.pid)
        AND r.start_ns <= p.peak_ns AND r.end_ns > p.peak_ns
    WHERE r.style = 'PushPop' AND NOT is_of_profiler(r.domain)
    GROUP BY p.report_id, p.device, own
),
paths AS (
    SELECT report_id, device, arg_max(path, coalesce(own, false)) AS path
    FROM around
    GROUP BY report_id, device
),
within AS (
    SELECT p.report_id, p.device, arg_max(s.name, s.host_start_ns) AS step
    FROM memory_places AS p
    JOIN _tracks AS t ON t.report_id = p.report_id AND t.pid = p.pid AND t.device = p.device
    JOIN _process_steps AS s
        ON s.track = t.track AND s.pid = t.pid
        AND s.host_start_ns <= p.peak_ns AND s.host_end_ns > p.peak_ns
    GROUP BY p.report_id, p.device
)
SELECT
    p.report_id,
    p.device,
    p.peak_bytes,
    p.peak_ns,
    w.step,
    a.path AS nvtx_path,
    s.reserved_bytes,
    g.memory_bytes,
    100 * coalesce(s.reserved_bytes, p.peak_bytes) / g.memory_bytes AS peak_pct,
    s.last_bytes,
    c.allocations
FROM memory_places AS p
JOIN summed AS s ON s.report_id = p.report_id AND s.device IS NOT DISTINCT FROM p.device
JOIN counted AS c ON c.report_id = p.report_id AND c.device IS NOT DISTINCT FROM p.device
LEFT JOIN paths AS a ON a.report_id = p.report_id AND a.device IS NOT DISTINCT FROM p.device
LEFT JOIN within AS w ON w.report_id = p.report_id AND w.device = p.device
LEFT JOIN nsys_gpus AS g ON g.report_id = p.report_id AND g.gpu = p.device
ORDER BY p.report_id, p.device;
