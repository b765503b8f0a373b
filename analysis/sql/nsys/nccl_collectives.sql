-- Communicating kernels by operation on each GPU, by their duration.  A duration holds the waiting for the other ranks
-- as well: of the participants of one collective the shortest comes nearest to the transfer.
--
-- report_id: report
-- device: GPU number of the machine
-- operation: kernel function
-- count: executions
-- total_ns: sum of durations, ns
-- share_pct: of all communicating kernels' time, %
-- avg_ns: mean duration, ns
-- med_ns: median, ns
-- min_ns: shortest, ns
-- p95_ns: 95th percentile, ns
-- max_ns: longest, ns
CREATE VIEW nccl_collectives AS
WITH sums AS (
    SELECT
        t.report_id,
        t.device,
        l.name AS operation,
        count(*) AS count,
        sum(l.end_ns - l.start_ns)::BIGINT AS total_ns,
        avg(l.end_ns - l.start_ns) AS avg_ns,
        median(l.end_ns - l.start_ns) AS med_ns,
        min(l.end_ns - l.start_ns) AS min_ns,
        quantile_cont(l.end_ns - l.start_ns, 0.95) AS p95_ns,
        max(l.end_ns - l.start_ns) AS max_ns
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    WHERE l.kind = 'kernel' AND is_communication(l.name)
    GROUP BY t.report_id, t.device, l.name
)
SELECT
    report_id,
    device,
    operation,
    count,
    total_ns,
    100.0 * total_ns / nullif(sum(total_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct,
    avg_ns,
    med_ns,
    min_ns,
    p95_ns,
    max_ns
FROM sums
ORDER BY report_id, device, total_ns DESC, operation;
