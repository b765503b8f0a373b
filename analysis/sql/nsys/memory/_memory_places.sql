-- The first time of each GPU's largest use of memory, and the process and thread that allocated there.
-- @materialize
CREATE VIEW _memory_places AS
WITH peaks AS (
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
)
SELECT
    a.report_id, a.device, a.peak_bytes, a.peak_ns, a.by.pid AS pid,
    coalesce(a.by.tid, min(c.tid)) AS tid
FROM allocated AS a
LEFT JOIN nsys_api_calls AS c
    ON c.report_id = a.report_id AND c.pid = a.by.pid AND c.correlation_id = a.by.call
    AND c.api IN ('runtime', 'driver')
GROUP BY a.report_id, a.device, a.peak_bytes, a.peak_ns, a.by;
