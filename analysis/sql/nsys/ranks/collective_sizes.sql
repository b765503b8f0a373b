-- Bandwidth of the collectives of a job by message size: what paired_collectives says of those of one
-- operation and size together.  The transfer is the time of the rank that arrived last, so that waiting is
-- not part of it.
--
-- job VARCHAR: as in job_ranks
-- operation VARCHAR: AllReduce, AllGather, ...
-- ranks BIGINT: number of participants captured
-- bytes BIGINT: bytes of a rank's call
-- count BIGINT: number of collectives
-- transfer_ns DOUBLE: transfer, median, ns
-- waiting_ns BIGINT: time beyond the transfer, summed over ranks and collectives, ns
-- spread_ns DOUBLE: time from the first arrival to the last, median, ns
-- algorithm_bytes_per_s DOUBLE: bytes over the transfer, median, byte/s; NULL if unknown
-- bus_bytes_per_s DOUBLE: bus bandwidth as in nccl-tests, median, byte/s; NULL likewise
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
