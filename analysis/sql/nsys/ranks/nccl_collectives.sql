-- Communication kernels on each GPU by operation. Durations include waiting for other ranks. In each
-- collective, the shortest duration on any rank is closest to the transfer time.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- operation VARCHAR: name of the kernel function
-- collective VARCHAR: collective operation, such as AllReduce or AllGather
-- count BIGINT: number of executions
-- total_ns BIGINT: sum of the durations, ns
-- share_pct DOUBLE: percentage of the total communication kernel time
-- avg_ns DOUBLE: mean duration, ns
-- med_ns DOUBLE: median duration, ns
-- min_ns BIGINT: shortest duration, ns
-- p95_ns DOUBLE: 95th percentile (p95) of the duration, ns
-- max_ns BIGINT: longest duration, ns
-- bytes BIGINT: number of bytes in this rank's calls, counted per rank as in NCCL: for an AllToAll, the
--   mean per peer; for a group with sends and receives, the larger direction; NULL if unknown (bytes are
--   recorded by nsys export --include-blobs=true and by torch.profiler)
-- algorithm_bytes_per_s DOUBLE: algorithm bandwidth including waiting: bytes / total_ns, byte/s
-- bus_bytes_per_s DOUBLE: bus bandwidth as defined by nccl-tests, including waiting, byte/s; for the
--   bandwidth without waiting, see paired_collectives
CREATE VIEW nccl_collectives AS
WITH sums AS (
    SELECT
        report_id,
        device,
        kernel_name AS operation,
        operation AS collective,
        count(*) AS count,
        sum(dur_ns)::BIGINT AS total_ns,
        avg(dur_ns) AS avg_ns,
        median(dur_ns) AS med_ns,
        min(dur_ns) AS min_ns,
        quantile_cont(dur_ns, 0.95) AS p95_ns,
        max(dur_ns) AS max_ns,
        sum(bytes)::BIGINT AS bytes,
        sum(dur_ns) FILTER (WHERE bytes IS NOT NULL) AS told_ns,
        ordered_sum(collective_bus_bytes(operation, bytes, ranks)::DOUBLE) AS bus_bytes,
        sum(dur_ns) FILTER (WHERE collective_bus_bytes(operation, bytes, ranks) IS NOT NULL) AS bus_ns
    FROM _collectives
    GROUP BY report_id, device, kernel_name, _collectives.operation
)
SELECT
    report_id,
    device,
    operation,
    collective,
    count,
    total_ns,
    100.0 * total_ns / nullif(sum(total_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct,
    avg_ns,
    med_ns,
    min_ns,
    p95_ns,
    max_ns,
    bytes,
    bytes / nullif(told_ns / 1e9, 0) AS algorithm_bytes_per_s,
    bus_bytes / nullif(bus_ns / 1e9, 0) AS bus_bytes_per_s
FROM sums
ORDER BY report_id, device, total_ns DESC, operation, collective;
