-- Copies and memsets on each GPU by direction and memory kind: bytes, achieved bandwidth, and how much of
-- their time overlaps with kernels. Only operations that begin within the analyzed window (the steady
-- steps, if there are steps) are included.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- operation VARCHAR: operation, as in memory_ops
-- src_kind VARCHAR: kind of source memory; copies from or to Pageable memory are staged through pinned
--   memory and block the host
-- dst_kind VARCHAR: kind of destination memory
-- count BIGINT: number of operations
-- total_ns BIGINT: sum of the durations, ns
-- bytes BIGINT: number of bytes copied or set
-- bytes_per_s DOUBLE: achieved bandwidth: bytes / total_ns, byte/s
-- link VARCHAR: link over which the bytes are transferred: PCIe (host), NVLink (peer) or DRAM (within the
--   device); NULL for other operations
-- link_bytes_per_s DOUBLE: vendor-published peak bandwidth of the link in the copy's direction, byte/s.
--   Copies within the device both read and write DRAM, so their peak is half of the DRAM bandwidth. Host
--   memory may be slower than the link. NULL if unknown
-- link_pct DOUBLE: achieved bandwidth as a percentage of link_bytes_per_s; short copies are latency-bound
-- covered_pct DOUBLE: percentage of the operations' time during which a kernel runs on the same GPU
-- pageable BOOLEAN: whether the source or destination is pageable host memory
CREATE VIEW memory_op_summary AS
WITH kernels AS (
    -- The union of kernels as segments, each with the total kernel time before it.
    SELECT
        track,
        greatest(start_ns, coalesce(kernels_until, start_ns)) AS start_ns,
        end_ns,
        sum(end_ns - greatest(start_ns, coalesce(kernels_until, start_ns))) OVER (
            PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM _ops
    WHERE class != 'transfer' AND beyond_ns(start_ns, end_ns, kernels_until) > 0
),
ops AS (
    SELECT w.track, m.operation, m.src_kind, m.dst_kind, m.start_ns, m.end_ns, m.dur_ns, m.bytes
    FROM nsys_memory_ops AS m
    JOIN _analysed_spans AS w
        ON w.report_id = m.report_id
            AND w.pid = m.pid
            AND w.cuda_device = m.device
            AND m.start_ns >= w.start_ns
            AND m.start_ns < w.end_ns
),
directions AS (
    SELECT *, row_number() OVER () AS number
    FROM (
        SELECT
            track,
            operation,
            src_kind,
            dst_kind,
            count(*) AS count,
            sum(dur_ns)::BIGINT AS total_ns,
            sum(bytes)::BIGINT AS bytes
        FROM ops
        GROUP BY track, operation, src_kind, dst_kind
    )
),
borders AS (
    -- Numbers instead of texts: to join by time sorts all columns.
    SELECT o.track, d.number, unnest([o.start_ns, o.end_ns]) AS at_ns, unnest([-1, 1]) AS sign
    FROM ops AS o
    JOIN directions AS d
        ON d.track = o.track
            AND d.operation IS NOT DISTINCT FROM o.operation
            AND d.src_kind IS NOT DISTINCT FROM o.src_kind
            AND d.dst_kind IS NOT DISTINCT FROM o.dst_kind
    WHERE o.end_ns IS NOT NULL
),
covered AS (
    -- Kernel time up to the end of an operation minus that up to its start.
    SELECT
        b.number,
        sum(b.sign * (coalesce(k.before_ns, 0) + least(b.at_ns, k.end_ns) - k.start_ns)) AS covered_ns
    FROM borders AS b
    ASOF JOIN kernels AS k ON k.track = b.track AND k.start_ns <= b.at_ns
    GROUP BY b.number
),
sums AS (
    SELECT g.report_id, g.device, d.* EXCLUDE (track), coalesce(c.covered_ns, 0) AS covered_ns
    FROM directions AS d
    JOIN _gpus AS g USING (track)
    LEFT JOIN covered AS c USING (number)
),
links AS (
    SELECT
        report_id,
        device,
        unnest([
            '[CUDA memcpy Host-to-Device]', '[CUDA memcpy Device-to-Host]',
            '[CUDA memcpy Unified Host-to-Device]', '[CUDA memcpy Unified Device-to-Host]'
        ]) AS operation,
        'PCIe' AS link,
        pcie_bytes_per_s AS peak
    FROM _gpu_links
    UNION ALL
    SELECT report_id, device, '[CUDA memcpy Device-to-Device]', 'DRAM', dram_bytes_per_s / 2
    FROM _gpu_links
    UNION ALL
    SELECT report_id, device, '[CUDA memcpy Peer-to-Peer]', 'NVLink', nvlink_bytes_per_s
    FROM _gpu_links
)
SELECT
    o.report_id,
    o.device,
    o.operation,
    o.src_kind,
    o.dst_kind,
    o.count,
    o.total_ns,
    o.bytes,
    o.bytes / nullif(o.total_ns / 1e9, 0) AS bytes_per_s,
    l.link,
    l.peak AS link_bytes_per_s,
    pct_of_peak(o.bytes / nullif(o.total_ns / 1e9, 0), l.peak) AS link_pct,
    100.0 * o.covered_ns / nullif(o.total_ns, 0) AS covered_pct,
    coalesce(o.src_kind = 'Pageable', false) OR coalesce(o.dst_kind = 'Pageable', false) AS pageable
FROM sums AS o
LEFT JOIN links AS l ON l.report_id = o.report_id AND l.device = o.device AND l.operation = o.operation
ORDER BY o.report_id, o.device, o.total_ns DESC, o.operation, o.src_kind, o.dst_kind;
