-- How much of each kernel is overlapped by other kernels, communication and compute separately, as
-- in nsys's recipe nccl_gpu_overlap_trace: on GPUs that communicate, from unions of intervals.
--
-- report_id: report
-- device: physical GPU number
-- pid: process
-- name: kernel function
-- start_ns: start, ns
-- end_ns: end, ns
-- communicates: whether it is a communication kernel
-- communication_overlap_pct: share of its time overlapped by another communication kernel on the
--   GPU, %; NULL if it has no duration
-- compute_overlap_pct: share overlapped by another kernel that is not communication, %
CREATE VIEW nccl_gpu_overlap_trace AS
WITH kernels AS (
    SELECT track, op_id, class, start_ns, end_ns
    FROM _ops
    WHERE class != 'transfer' AND track IN (SELECT track FROM _ops WHERE class = 'communication')
),
events AS (
    SELECT track, class, start_ns AS at_ns, 1 AS change FROM kernels
    UNION ALL
    SELECT track, class, end_ns, -1 FROM kernels
),
changes AS (
    SELECT
        track,
        at_ns,
        coalesce(sum(change) FILTER (WHERE class = 'compute'), 0) AS compute,
        coalesce(sum(change) FILTER (WHERE class = 'communication'), 0) AS communication
    FROM events
    GROUP BY track, at_ns
),
running AS (
    SELECT
        track,
        at_ns,
        sum(compute) OVER w AS compute,
        sum(communication) OVER w AS communication,
        lead(at_ns) OVER w - at_ns AS length_ns
    FROM changes
    WINDOW w AS (PARTITION BY track ORDER BY at_ns)
),
-- Time so far with at least one kernel of a kind, and with at least two: a kernel does not overlap itself.
so_far AS (
    SELECT
        track,
        at_ns,
        coalesce(sum(CASE WHEN compute > 0 THEN length_ns END) OVER w, 0) AS compute_ns,
        coalesce(sum(CASE WHEN compute > 1 THEN length_ns END) OVER w, 0) AS two_compute_ns,
        coalesce(sum(CASE WHEN communication > 0 THEN length_ns END) OVER w, 0) AS communication_ns,
        coalesce(sum(CASE WHEN communication > 1 THEN length_ns END) OVER w, 0) AS two_communicate_ns
    FROM running
    WINDOW w AS (PARTITION BY track ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
covered AS (
    SELECT
        k.*,
        CASE
            WHEN k.class = 'communication' THEN e.two_communicate_ns - s.two_communicate_ns
            ELSE e.communication_ns - s.communication_ns
        END AS communication_ns,
        CASE
            WHEN k.class = 'compute' THEN e.two_compute_ns - s.two_compute_ns
            ELSE e.compute_ns - s.compute_ns
        END AS compute_ns
    FROM kernels AS k
    JOIN so_far AS s ON s.track = k.track AND s.at_ns = k.start_ns
    JOIN so_far AS e ON e.track = k.track AND e.at_ns = k.end_ns
)
SELECT
    t.report_id,
    t.device,
    l.pid,
    l.name,
    c.start_ns,
    c.end_ns,
    c.class = 'communication' AS communicates,
    100.0 * c.communication_ns / nullif(c.end_ns - c.start_ns, 0) AS communication_overlap_pct,
    100.0 * c.compute_ns / nullif(c.end_ns - c.start_ns, 0) AS compute_overlap_pct
FROM covered AS c
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = c.op_id
ORDER BY c.track, c.start_ns, c.op_id;
