-- Messages from one rank to another (send and receive) within the analyzed window, by communicator. Both
-- sides must be captured for times; counts and bytes are those of the captured side.
--
-- job VARCHAR: job, as in job_ranks
-- communicator VARCHAR: communicator, as in paired_collectives; NULL if unknown
-- source BIGINT: rank that sends
-- target BIGINT: rank that receives
-- count BIGINT: number of messages
-- bytes BIGINT: bytes of the messages; NULL if unknown
-- transfer_ns BIGINT: time in which both sides are in the message: the shorter of the two kernels, ns; an
--   upper bound on the transfer if one kernel carries several messages; NULL if one side was not captured
-- receiver_ns BIGINT: time that the receiver waits for the sender, ns; NULL if one side was not captured
-- sender_ns BIGINT: time that the sender waits for the receiver, ns; NULL if one side was not captured
-- bytes_per_s DOUBLE: bytes per transfer time, byte/s; NULL if unknown
CREATE VIEW rank_pairs AS
WITH counted AS (
    SELECT job, communicator, source, target, way, count(*) AS messages, sum(bytes)::BIGINT AS bytes
    FROM _messages
    WHERE analysed
    GROUP BY job, communicator, source, target, way
),
sides AS (
    SELECT job, communicator, source, target, max(messages) AS messages, max(bytes) AS bytes
    FROM counted
    GROUP BY job, communicator, source, target
),
timed AS (
    SELECT
        job,
        communicator,
        source,
        target,
        sum(bytes)::BIGINT AS bytes,
        sum(transfer_ns)::BIGINT AS transfer_ns,
        sum(receiver_ns)::BIGINT AS receiver_ns,
        sum(sender_ns)::BIGINT AS sender_ns
    FROM _message_pairs
    WHERE analysed
    GROUP BY job, communicator, source, target
)
SELECT
    s.job,
    s.communicator,
    s.source,
    s.target,
    s.messages AS count,
    s.bytes,
    t.transfer_ns,
    t.receiver_ns,
    t.sender_ns,
    t.bytes / nullif(t.transfer_ns / 1e9, 0) AS bytes_per_s
FROM sides AS s
LEFT JOIN timed AS t
    ON t.job = s.job
        AND t.communicator IS NOT DISTINCT FROM s.communicator
        AND t.source = s.source
        AND t.target = s.target
ORDER BY s.job, s.source, s.target, s.communicator;
