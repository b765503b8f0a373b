-- Copies and memsets by direction and kind of memory on each GPU: bytes, achieved bandwidth, and how much of their time kernels cover.
--
-- report_id: report
-- device: GPU number of the machine
-- operation: as in nsys_memory_ops
-- src_kind: memory read; a Pageable copy is staged through pinned memory and waits
-- dst_kind: memory written
-- count: operations
-- total_ns: sum of durations, ns
-- bytes: bytes moved or set
-- bytes_per_s: bytes over the sum of durations, byte/s
-- link: what the bytes go through: PCIe (host), NVLink (peer) or DRAM (within the device); NULL for others
-- link_bytes_per_s: its vendor peak in that direction, byte/s; DRAM is read and written, and so counts half; the host's side may be slower; NULL where unknown
-- link_pct: achieved of it, %; short copies are bound by latency
-- covered_pct: share of their time with a kernel on the same GPU, %
-- pageable: whether either side is pageable host memory
CREATE VIEW memory_op_summary AS
WITH kernels AS (
    -- The union of kernels as segments, each with the kernel time before it.
    SELECT
        track,
        greatest(start_ns, coalesce(kernels_until, start_ns)) AS start_ns,
        end_ns,
        sum(end_ns - greatest(start_ns, coalesce(kernels_until, start_ns))) OVER (
            PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM _ops
    WHERE class < 3 AND end_ns > coalesce(kernels_until, start_ns)
),
ops AS (
    SELECT t.track, t.report_id, t.device, m.operation, m.src_kind, m.dst_kind, m.start_ns, m.end_ns, m.dur_ns, m.bytes
    FROM nsys_memory_ops AS m
    JOIN _tracks AS t ON t.report_id = m.report_id AND t.pid = m.pid AND t.cuda_device = m.device
),
begun AS (
    SELECT o.*, coalesce(k.before_ns, 0) + coalesce(least(o.start_ns, k.end_ns) - k.start_ns, 0) AS kernel_ns_at_start
    FROM ops AS o
    ASOF LEFT JOIN kernels AS k ON k.track = o.track AND k.start_ns <= o.start_ns
),
covered AS (
    -- Kernel time up to the end of an operation, less that up to its start.
    SELECT o.*, coalesce(k.before_ns, 0) + coalesce(least(o.end_ns, k.end_ns) - k.start_ns, 0) - o.kernel_ns_at_start AS covered_ns
    FROM begun AS o
    ASOF LEFT JOIN kernels AS k ON k.track = o.track AND k.start_ns <= o.end_ns
),
links AS (
    SELECT report_id, unnest(['[CUDA memcpy Host-to-Device]', '[CUDA memcpy Device-to-Host]']) AS operation, 'PCIe' AS link, pcie_bytes_per_s AS peak
    FROM _gpu_links
    UNION ALL
    SELECT report_id, '[CUDA memcpy Device-to-Device]', 'DRAM', dram_bytes_per_s / 2
    FROM _gpu_links
    UNION ALL
    SELECT report_id, '[CUDA memcpy Peer-to-Peer]', 'NVLink', nvlink_bytes_per_s
    FROM _gpu_links
)
SELECT
    o.report_id,
    o.device,
    o.operation,
    o.src_kind,
    o.dst_kind,
    count(*) AS count,
    sum(o.dur_ns)::BIGINT AS total_ns,
    sum(o.bytes)::BIGINT AS bytes,
    sum(o.bytes) / nullif(sum(o.dur_ns) / 1e9, 0) AS bytes_per_s,
    any_value(l.link) AS link,
    any_value(l.peak) AS link_bytes_per_s,
    100 * sum(o.bytes) / nullif(sum(o.dur_ns) / 1e9, 0) / nullif(any_value(l.peak), 0) AS link_pct,
    100.0 * coalesce(sum(o.covered_ns), 0) / nullif(sum(o.dur_ns), 0) AS covered_pct,
    coalesce(o.src_kind = 'Pageable', false) OR coalesce(o.dst_kind = 'Pageable', false) AS pageable
FROM covered AS o
LEFT JOIN links AS l ON l.report_id = o.report_id AND l.operation = o.operation
GROUP BY o.report_id, o.device, o.operation, o.src_kind, o.dst_kind
ORDER BY o.report_id, o.device, total_ns DESC, o.operation, o.src_kind, o.dst_kind;
