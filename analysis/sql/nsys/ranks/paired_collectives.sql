-- A job's collectives that begin within the analyzed window (the steady steps, if there are steps) on every
-- rank, matched across ranks. The transfer time is the shortest duration on any rank; any time in excess of
-- the transfer time is waiting. Times are on the job's clock.
--
-- job VARCHAR: job, as in job_ranks
-- operation VARCHAR: operation, such as AllReduce or AllGather
-- communicator VARCHAR: NCCL communicator; NULL if the export does not contain payloads
-- nth BIGINT: sequence number of the operation in the communicator; 1 is the first in the capture
-- ranks BIGINT: number of participating ranks that were captured
-- first_start_ns BIGINT: time at which the first rank arrived, ns
-- last_start_ns BIGINT: time at which the last rank arrived, ns
-- end_ns BIGINT: time at which the last rank finished, ns
-- transfer_ns BIGINT: transfer time: the shortest duration of the collective on any rank, ns
-- waiting_ns BIGINT: waiting time in excess of the transfer time, summed over the ranks, ns
-- last_rank BIGINT: rank that arrived last; NULL if the arrivals are closer together than the clock error
-- bytes BIGINT: bytes per call on one rank; NULL if the export does not contain payloads
-- algorithm_bytes_per_s DOUBLE: algorithm bandwidth: bytes / transfer time, byte/s; NULL for operations
--   with a root if the ranks did not arrive together
-- bus_bytes_per_s DOUBLE: bus bandwidth as defined by nccl-tests, byte/s; NULL if algorithm_bytes_per_s is
--   NULL or the number of ranks is unknown
-- together BOOLEAN: whether all ranks were in the collective at the same time; if false, the match may be
--   wrong
CREATE VIEW paired_collectives AS
SELECT * EXCLUDE (analysed, settled)
FROM _pairs
WHERE analysed
ORDER BY job, first_start_ns, operation, communicator, nth;
