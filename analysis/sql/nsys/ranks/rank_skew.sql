-- Which rank waits for which in a job: time of each rank in collectives beyond the transfer, and
-- how often it arrived last.
-- @materialize
--
-- job: as in job_ranks
-- rank: rank
-- report_id: report
-- device: physical GPU number
-- collectives: number of paired collectives
-- transfer_ns: sum of their transfer times, ns
-- waiting_ns: time that the rank waited in them, ns
-- waiting_pct: its share of the time in these collectives, %
-- window_pct: its share of the rank's time from its first to its last operation, %
-- start_ns: part of it in the rank's first collective: the ranks started apart, ns
-- last: number of collectives in which it arrived last
-- last_pct: share of those with a known last rank, %
-- straggler: steady if one rank is last in at least 80 % of them, moves if none is; NULL if no rank
--   is known to be last
CREATE VIEW rank_skew AS
WITH waits AS (
    SELECT
        p.job, p.rank, p.report_id, p.track, p.device, p.dur_ns, c.transfer_ns, c.last_rank,
        row_number() OVER (PARTITION BY p.job, p.rank ORDER BY p.start_ns, p.op_id) = 1 AS first
    FROM _paired AS p
    JOIN paired_collectives AS c ON c.job = p.job AND c.operation = p.operation AND c.nth = p.nth
        AND c.communicator IS NOT DISTINCT FROM p.communicator
),
sums AS (
    SELECT
        job,
        rank,
        report_id,
        track,
        device,
        count(*) AS collectives,
        sum(transfer_ns)::BIGINT AS transfer_ns,
        sum(dur_ns - transfer_ns)::BIGINT AS waiting_ns,
        sum(dur_ns - transfer_ns) FILTER (first)::BIGINT AS start_ns,
        count(*) FILTER (last_rank = rank) AS last,
        count(last_rank) AS known
    FROM waits
    GROUP BY job, rank, report_id, track, device
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
    100.0 * s.waiting_ns / nullif(w.end_ns - w.start_ns, 0) AS window_pct,
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
JOIN _spans AS w USING (track)
ORDER BY s.job, s.rank;
