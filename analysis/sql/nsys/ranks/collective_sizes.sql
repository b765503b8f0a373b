-- Bandwidth of a job's collectives by operation and message size, summarized from paired_collectives. The
-- transfer time is the duration on the rank that arrived last, so the transfer time does not include waiting.
--
-- job VARCHAR: job, as in job_ranks
-- operation VARCHAR: operation, such as AllReduce or AllGather
-- ranks BIGINT: number of participating ranks that were captured
-- bytes BIGINT: bytes per call on one rank
-- count BIGINT: number of collectives
-- transfer_ns DOUBLE: median transfer time, ns
-- waiting_ns BIGINT: waiting time in excess of the transfer time, summed over ranks and collectives, ns
-- spread_ns DOUBLE: median time from the first to the last arrival, ns
-- algorithm_bytes_per_s DOUBLE: median algorithm bandwidth: bytes / transfer time, byte/s; NULL if unknown
-- bus_bytes_per_s DOUBLE: median bus bandwidth as in nccl-tests, byte/s; NULL if unknown
CREATE VIEW collective_sizes AS
SELECT
    job,
    operation,
    ranks,
    bytes,
    count(*) AS count,
    median(transfer_ns) AS transfer_ns,
    sum(waiting_ns)::BIGINT AS waiting_ns,
    median(last_start_ns - first_start_ns) AS spread_ns,
    median(algorithm_bytes_per_s) AS algorithm_bytes_per_s,
    median(bus_bytes_per_s) AS bus_bytes_per_s
FROM paired_collectives
WHERE bytes IS NOT NULL
GROUP BY job, operation, ranks, bytes
ORDER BY job, operation, ranks, bytes;
