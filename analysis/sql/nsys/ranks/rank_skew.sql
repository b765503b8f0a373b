-- How long a job's ranks wait for each other within the analyzed window (the steady steps, if there are
-- steps): each rank's time in collectives in excess of the transfer time, and how often the rank arrived
-- last.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- collectives BIGINT: number of paired collectives
-- transfer_ns BIGINT: sum of the transfer times of the paired collectives, ns
-- waiting_ns BIGINT: time that the rank waited in the paired collectives, ns
-- waiting_pct DOUBLE: waiting_ns as a percentage of the rank's time in the paired collectives
-- window_pct DOUBLE: waiting_ns as a percentage of the window
-- start_ns BIGINT: time that the rank waited in its first collective because the ranks started at different
--   times, ns; 0 if the first collective is not within the window
-- last BIGINT: number of collectives in which the rank arrived last
-- last_pct DOUBLE: percentage of collectives in which this rank arrived last, among collectives whose last
--   rank is known
-- straggler VARCHAR: steady (the same rank arrives last in at least 80 % of the job's collectives) or moves;
--   NULL if no last rank is known
CREATE VIEW rank_skew AS
WITH ordered AS (
    SELECT *, row_number() OVER (PARTITION BY job, rank ORDER BY start_ns, op_id) = 1 AS first
    FROM _paired
),
waits AS (
    SELECT p.job, p.rank, p.report_id, p.device, p.dur_ns, p.first, c.transfer_ns, c.last_rank
    FROM ordered AS p
    JOIN paired_collectives AS c ON c.job = p.job AND c.operation = p.operation AND c.nth = p.nth
        AND c.communicator IS NOT DISTINCT FROM p.communicator
),
sums AS (
    SELECT
        job,
        rank,
        report_id,
        device,
        count(*) AS collectives,
        sum(transfer_ns)::BIGINT AS transfer_ns,
        sum(dur_ns - transfer_ns)::BIGINT AS waiting_ns,
        coalesce(sum(dur_ns - transfer_ns) FILTER (first), 0)::BIGINT AS start_ns,
        count(*) FILTER (last_rank = rank) AS last,
        count(last_rank) AS known
    FROM waits
    GROUP BY job, rank, report_id, device
)
SELECT
    s.job,
    s.rank,
    s.report_id,
    s.device,
    s.collectives,
    s.transfer_ns,
    s.waiting_ns,
    100.0 * s.waiting_ns / nullif(s.waiting_ns + s.transfer_ns, 0) AS waiting_pct,
    100.0 * s.waiting_ns / nullif(w.time_ns, 0) AS window_pct,
    s.start_ns,
    s.last,
    100.0 * s.last / nullif(s.known, 0) AS last_pct,
    CASE
        WHEN s.known = 0 THEN NULL
        WHEN max(s.last / nullif(s.known, 0)) OVER (PARTITION BY s.job)
            >= threshold('timeline.steady_straggler')
            THEN 'steady'
        ELSE 'moves'
    END AS straggler
FROM sums AS s
JOIN analysis_windows AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device
ORDER BY s.job, s.rank;
