-- Lateness of each rank in each step: how much it delays a group of ranks. All steps after warm-up of the
-- loop that is analyzed are included, because a late rank makes a step longer than the others. Only
-- collectives that all captured ranks of a communicator share are included. Lateness that a rank inherits
-- from a rank for which it waits is not its own: waiting in collectives, and in messages if it is more than
-- the median rank of the group waits. If collectives follow each other without work between them on the
-- rank that waits longest, only the longest waiting counts, because it is the same lateness.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- step BIGINT: number of the step on each rank, from 1
-- step_ns BIGINT: duration of the step on the rank, ns
-- collectives BIGINT: number of collectives in the step
-- behind_ns BIGINT: time by which the median rank is longer in a collective because this rank arrives later,
--   summed over the collectives of the communicator that the rank delays most, ns
-- waiting_ns BIGINT: time that the rank waits in collectives of the step, and for messages beyond the median
--   rank of the communicator, ns
-- late_ns BIGINT: behind_ns minus waiting_ns, at least 0: the rank's own lateness, ns
CREATE VIEW rank_lateness AS
WITH received AS (
    SELECT job, target AS rank, step, sum(receiver_ns) AS receiver_ns
    FROM _message_pairs
    GROUP BY job, target, step
),
compared AS (
    SELECT
        g.*,
        sum(g.waiting_ns) OVER (PARTITION BY g.job, g.rank, g.report_id, g.device, g.step) AS collective_ns,
        greatest(0, coalesce(r.receiver_ns, 0) - quantile_disc(coalesce(r.receiver_ns, 0), 0.5) OVER (
            PARTITION BY g.job, g.communicator, g.step
        )) AS message_ns
    FROM _group_delays AS g
    LEFT JOIN received AS r USING (job, rank, step)
    WHERE g.step IS NOT NULL
)
SELECT
    job,
    rank,
    report_id,
    device,
    step,
    any_value(step_ns) AS step_ns,
    sum(collectives)::BIGINT AS collectives,
    arg_max(behind_ns, (behind_ns - message_ns, communicator)) AS behind_ns,
    arg_max(collective_ns + message_ns, (behind_ns - message_ns, communicator))::BIGINT AS waiting_ns,
    greatest(0, max(behind_ns - message_ns - collective_ns))::BIGINT AS late_ns
FROM compared
GROUP BY job, rank, report_id, device, step
ORDER BY job, rank, report_id, device, step;
