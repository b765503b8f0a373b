-- Changes of the memory that a process has on a GPU: CUDA allocations from nsys, tensors from torch.profiler.
-- `delta` is the change of memory in use, `reserved_delta` the change of memory reserved on the device for
-- it.
-- @materialize
CREATE VIEW _memory_changes AS
WITH recorded AS (
    SELECT
        report_id, timestamp_ns, pid, device, correlation_id, operation, kind, address,
        if(operation = 'Allocation', bytes, 0) AS held,
        nullif(pool_address, 0) AS pool,
        pool_bytes
    FROM nsys_memory_usage
    -- Memory that another process allocated is counted for that process.
    WHERE coalesce(imported_pool, 0) = 0
),
-- An address holds the latest allocation, so a lost release, or a release of memory whose allocation was not
-- recorded, has no effect.
changed AS (
    SELECT
        *,
        held - lag(held, 1, 0) OVER earlier AS delta,
        pool_bytes - lag(pool_bytes, 1, 0) OVER of_pool AS pool_delta,
        if(operation = 'Allocation', kind, lag(kind) OVER earlier) AS owner
    FROM recorded
    WINDOW
        earlier AS (
            PARTITION BY report_id, pid, address ORDER BY timestamp_ns, correlation_id, operation DESC
        ),
        of_pool AS (PARTITION BY report_id, pid, pool ORDER BY timestamp_ns, correlation_id, operation DESC)
)
SELECT
    c.report_id,
    coalesce(d.gpu, c.device) AS device,
    c.pid AS process_id,
    CASE
        WHEN c.owner LIKE '%Static' THEN 'static'
        ELSE coalesce(lower(c.owner), 'unknown')
    END AS kind,
    c.timestamp_ns AS time_ns,
    c.delta,
    if(c.pool IS NULL, c.delta, coalesce(c.pool_delta, c.delta)) AS reserved_delta,
    c.correlation_id,
    NULL::BIGINT AS tid
FROM changed AS c
LEFT JOIN nsys_cuda_devices AS d ON d.report_id = c.report_id AND d.pid = c.pid AND d.device = c.device
WHERE (c.delta != 0 OR c.pool_delta != 0) AND coalesce(c.owner, '') NOT IN ('Pinned', 'Pageable')
UNION ALL
SELECT
    report_id,
    device,
    pid,
    'tensor',
    timestamp_ns,
    allocated_bytes - lag(allocated_bytes, 1, 0) OVER (PARTITION BY report_id, pid, device ORDER BY event),
    reserved_bytes - lag(reserved_bytes, 1, 0) OVER (PARTITION BY report_id, pid, device ORDER BY event),
    NULL,
    tid
FROM torch_memory
WHERE device_type = 'CUDA' AND allocated_bytes IS NOT NULL;
