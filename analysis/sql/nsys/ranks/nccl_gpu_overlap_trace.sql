-- Overlap of each kernel with other kernels on GPUs that communicate, separately for communication and
-- compute, as in nsys's recipe nccl_gpu_overlap_trace. The overlap is computed from unions of intervals.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- pid BIGINT: process id
-- name VARCHAR: name of the kernel function
-- start_ns BIGINT: start of the kernel, ns
-- end_ns BIGINT: end of the kernel, ns
-- communicates BOOLEAN: whether the kernel is a communication kernel
-- communication_overlap_pct DOUBLE: percentage of the kernel's duration during which other communication
--   kernels run on the GPU; NULL if the duration is 0
-- compute_overlap_pct DOUBLE: percentage of the kernel's duration during which other kernels, excluding
--   communication kernels, run on the GPU; NULL if the duration is 0
CREATE VIEW nccl_gpu_overlap_trace AS
WITH kernels AS (
    SELECT
        track,
        op_id,
        pid,
        name_number,
        class = 'communication' AS communicates,
        start_ns,
        end_ns,
        if(class = 'communication', communication_until, compute_until) AS own_until,
        if(class = 'communication', compute_until, communication_until) AS other_until,
        beside_next
    FROM _ops
    WHERE class != 'transfer' AND track IN (SELECT track FROM _ops WHERE class = 'communication')
),
-- Most kernels run alone, without a concurrent copy; they need not be sorted again.
together AS (
    SELECT *
    FROM kernels
    WHERE beside_next OR own_until > start_ns OR other_until > start_ns
),
-- Times in which a kernel runs concurrently with an earlier one of its kind.
shared AS (
    SELECT
        track,
        communicates,
        start_ns,
        least(end_ns, own_until) AS end_ns,
        max(least(end_ns, own_until)) OVER (
            PARTITION BY track, communicates
            ORDER BY start_ns, end_ns, op_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS until
    FROM together
    WHERE own_until > start_ns
),
-- Time in which at least one or at least two kernels of a kind run, as consecutive intervals.
unions AS (
    SELECT
        track,
        communicates,
        false AS two,
        greatest(start_ns, coalesce(own_until, start_ns)) AS start_ns,
        end_ns
    FROM together
    WHERE beyond_ns(start_ns, end_ns, own_until) > 0
    UNION ALL
    SELECT track, communicates, true, greatest(start_ns, coalesce(until, start_ns)), end_ns
    FROM shared
    WHERE beyond_ns(start_ns, end_ns, until) > 0
),
covering AS (
    SELECT
        *,
        sum(end_ns - start_ns) OVER (PARTITION BY track, communicates, two ORDER BY start_ns) AS total_ns
    FROM unions
),
-- Both ends of kernels during which others start, for either kind. A kernel does not overlap itself: two
-- kernels of its own kind must run.
borders AS (
    SELECT
        track,
        op_id,
        communicates = two AS by_communication,
        two,
        unnest([start_ns, end_ns]) AS at_ns,
        unnest([-1, 1]) AS sign
    FROM together, (VALUES (true), (false)) AS v (two)
    WHERE beside_next
),
timed AS (
    SELECT b.*, b.sign * (c.total_ns - greatest(0, c.end_ns - b.at_ns)) AS ns
    FROM borders AS b
    ASOF JOIN covering AS c
        ON c.track = b.track
            AND c.communicates = b.by_communication
            AND c.two = b.two
            AND c.start_ns <= b.at_ns
),
measured AS (
    SELECT
        track,
        op_id,
        (sum(ns) FILTER (two))::BIGINT AS own_ns,
        (sum(ns) FILTER (NOT two))::BIGINT AS other_ns
    FROM timed
    GROUP BY track, op_id
),
covered AS (
    -- If no other kernel starts during a kernel, earlier kernels cover it from its start.
    SELECT
        k.*,
        coalesce(m.own_ns, overlap_ns(k.start_ns, k.end_ns, k.start_ns, k.own_until), 0) AS own_ns,
        coalesce(m.other_ns, overlap_ns(k.start_ns, k.end_ns, k.start_ns, k.other_until), 0) AS other_ns
    FROM kernels AS k
    LEFT JOIN measured AS m USING (track, op_id)
)
SELECT
    t.report_id,
    t.device,
    c.pid,
    n.name,
    c.start_ns,
    c.end_ns,
    c.communicates,
    100.0 * if(c.communicates, own_ns, other_ns) / nullif(c.end_ns - c.start_ns, 0)
        AS communication_overlap_pct,
    100.0 * if(c.communicates, other_ns, own_ns) / nullif(c.end_ns - c.start_ns, 0) AS compute_overlap_pct
FROM covered AS c
JOIN _gpus AS t USING (track)
LEFT JOIN _names AS n ON n.number = c.name_number
ORDER BY c.track, c.start_ns, c.op_id;
