-- GPU operations joined to the API call that launched them.  Correlation ids restart in every
-- process, so the process is part of the key; where one key has several calls the first counts.
WITH ops AS (
    SELECT 'kernel' AS kind, device, stream, start_ns, end_ns, name, pid, correlation_id, graph_node_id
    FROM read_parquet(getvariable('kernels'))
    UNION ALL
    SELECT
        CASE WHEN operation = '[CUDA memset]' THEN 'memset' ELSE 'memcpy' END,
        device, stream, start_ns, end_ns, operation, pid, correlation_id, graph_node_id
    FROM read_parquet(getvariable('memory_ops'))
    UNION ALL
    SELECT
        'graph', device, stream, start_ns, end_ns, 'graph ' || graph_exec_id, pid, correlation_id, NULL
    FROM read_parquet(getvariable('graphs'))
),
calls AS (
    SELECT
        pid,
        correlation_id,
        arg_min(tid, start_ns) AS tid,
        arg_min(name, start_ns) AS name,
        arg_min(end_ns, start_ns) AS end_ns,
        min(start_ns) AS start_ns
    FROM read_parquet(getvariable('api_calls'))
    WHERE correlation_id != 0
        AND (pid, correlation_id) IN (SELECT (pid, correlation_id) FROM ops)
    GROUP BY pid, correlation_id
)
SELECT
    getvariable('report_id') AS report_id,
    ops.kind,
    ops.device,
    ops.stream,
    ops.start_ns,
    ops.end_ns,
    ops.name,
    ops.pid,
    calls.tid,
    ops.correlation_id,
    ops.graph_node_id,
    calls.name AS api_name,
    calls.start_ns AS api_start_ns,
    calls.end_ns AS api_end_ns
FROM ops
LEFT JOIN calls ON calls.pid = ops.pid AND calls.correlation_id = ops.correlation_id
ORDER BY ops.start_ns, ops.end_ns, ops.pid, ops.device, ops.stream, ops.correlation_id, ops.graph_node_id
