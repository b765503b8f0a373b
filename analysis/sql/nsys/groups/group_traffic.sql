-- Traffic of each group of ranks within the analyzed window: bytes, bandwidth against the link, how much of
-- the communication is not hidden behind compute, how long its ranks wait, and which rank is late. Times are
-- means over the captured ranks.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- group_id VARCHAR: group, as in rank_groups
-- kind VARCHAR: kind of the group, as in rank_groups
-- ranks VARCHAR: ranks of the group; NULL if unknown
-- count DOUBLE: communication kernels per rank
-- bytes DOUBLE: bytes per rank, counted as in nccl_collectives; NULL if unknown
-- time_ns DOUBLE: duration of the communication kernels per rank, ns
-- exposed_ns DOUBLE: part of time_ns without concurrent compute, per rank, ns
-- exposed_pct DOUBLE: exposed_ns as a percentage of the window
-- waiting_ns DOUBLE: waiting time per rank: duration in excess of the transfer time in collectives, and in
--   messages the time before the other side arrived, ns; NULL if only one rank was captured
-- waiting_pct DOUBLE: waiting_ns as a percentage of the window
-- bus_bytes_per_s DOUBLE: bus bandwidth as defined by nccl-tests, without waiting, byte/s; of messages: bytes
--   per transfer time; NULL if unknown
-- link VARCHAR: link between the ranks: NVLink, PCIe, network or unknown
-- link_bytes_per_s DOUBLE: bandwidth of the link in one direction per GPU, from the vendor, byte/s; NULL if
--   unknown
-- link_pct DOUBLE: bus_bytes_per_s as a percentage of link_bytes_per_s; NULL if unknown
-- link_why VARCHAR: how the link is known, or why it is unknown
-- late_rank BIGINT: rank for which the median rank waits longest in collectives of all steps after warm-up
--   (rank_lateness); NULL if unknown, or if it is noise, as in slow_ranks
-- late_pct DOUBLE: late_rank's share of the time for which the median rank waits for other ranks, %
CREATE VIEW group_traffic AS
WITH uses AS (
    SELECT
        o.job,
        o.group_id,
        count(DISTINCT o.rank) AS ranks,
        count(*) AS calls,
        sum(o.bytes)::BIGINT AS bytes,
        sum(o.dur_ns)::BIGINT AS time_ns,
        sum(e.exposed_ns)::BIGINT AS exposed_ns
    FROM _group_ops AS o
    JOIN _exposed_ops AS e USING (report_id, op_id)
    GROUP BY o.job, o.group_id
),
windows AS (
    SELECT job, group_id, avg(time_ns ORDER BY report_id, device) AS time_ns
    FROM (SELECT DISTINCT job, group_id, report_id, device FROM _group_ops)
    JOIN analysis_windows USING (report_id, device)
    GROUP BY job, group_id
),
paired AS (
    SELECT
        job,
        coalesce(communicator, 'unknown') AS group_id,
        sum(waiting_ns)::BIGINT AS waiting_ns,
        sum(transfer_ns) FILTER (bus_bytes_per_s IS NOT NULL)::BIGINT AS bus_ns,
        ordered_sum(bus_bytes_per_s * (transfer_ns / 1e9)) AS bus_bytes
    FROM paired_collectives
    GROUP BY job, coalesce(communicator, 'unknown')
),
messages AS (
    SELECT
        p.job,
        o.group_id,
        sum(p.receiver_ns + p.sender_ns)::BIGINT AS waiting_ns,
        sum(p.transfer_ns) FILTER (p.bytes IS NOT NULL)::BIGINT AS bus_ns,
        sum(p.bytes)::DOUBLE AS bus_bytes
    FROM _message_pairs AS p
    JOIN _group_ops AS o ON o.report_id = p.target_report AND o.op_id = p.target_op
    GROUP BY p.job, o.group_id
),
carried AS (
    FROM paired
    UNION ALL
    FROM messages
),
late AS (
    SELECT
        job,
        coalesce(communicator, 'unknown') AS group_id,
        rank,
        100.0 * sum(behind_ns) / sum(sum(behind_ns)) OVER (
            PARTITION BY job, coalesce(communicator, 'unknown')
        ) AS late_pct
    FROM _group_delays
    GROUP BY job, coalesce(communicator, 'unknown'), rank
    QUALIFY row_number() OVER (
        PARTITION BY job, coalesce(communicator, 'unknown') ORDER BY sum(behind_ns) DESC, rank
    ) = 1
        AND sum(behind_ns) >= threshold('lateness.late_step_pct') / 100 * sum(step_ns)
)
SELECT
    u.job,
    u.group_id,
    g.kind,
    g.ranks,
    u.calls / u.ranks AS count,
    u.bytes / u.ranks AS bytes,
    u.time_ns / u.ranks AS time_ns,
    u.exposed_ns / u.ranks AS exposed_ns,
    100.0 * u.exposed_ns / u.ranks / nullif(w.time_ns, 0) AS exposed_pct,
    c.waiting_ns / u.ranks AS waiting_ns,
    100.0 * c.waiting_ns / u.ranks / nullif(w.time_ns, 0) AS waiting_pct,
    c.bus_bytes / nullif(c.bus_ns / 1e9, 0) AS bus_bytes_per_s,
    l.link,
    l.link_bytes_per_s,
    100.0 * c.bus_bytes / nullif(c.bus_ns / 1e9, 0) / l.link_bytes_per_s AS link_pct,
    l.link_why,
    t.rank AS late_rank,
    t.late_pct
FROM uses AS u
JOIN rank_groups AS g USING (job, group_id)
JOIN windows AS w USING (job, group_id)
LEFT JOIN _group_links AS l USING (job, group_id)
LEFT JOIN carried AS c USING (job, group_id)
LEFT JOIN late AS t USING (job, group_id)
ORDER BY u.job, u.exposed_ns DESC, u.group_id;
