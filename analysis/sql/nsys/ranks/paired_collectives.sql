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
WITH aligned AS (
    SELECT
        p.*,
        p.start_ns + c.offset_ns AS at_ns,
        p.end_ns + c.offset_ns AS until_ns,
        coalesce(c.residual_ns, 0) AS residual_ns
    FROM _paired AS p
    JOIN _clocks AS c USING (job, report_id)
),
sums AS (
    SELECT
        job,
        operation,
        communicator,
        nth,
        count(*) AS ranks,
        min(at_ns) AS first_start_ns,
        max(at_ns) AS last_start_ns,
        max(until_ns) AS end_ns,
        min(dur_ns) AS transfer_ns,
        (sum(dur_ns) - count(*) * min(dur_ns))::BIGINT AS waiting_ns,
        -- Arrival of the second to last rank: the last rank is known if it arrived clearly later.
        CASE
            WHEN max(at_ns) - list_sort(list(at_ns))[-2] > max(residual_ns) THEN arg_max(rank, at_ns)
        END AS last_rank,
        max(bytes) AS bytes,
        max(collective_bus_bytes(operation, bytes, p.ranks)) AS bus_bytes,
        max(at_ns) <= min(until_ns) + max(residual_ns) AS together
    FROM aligned AS p
    GROUP BY job, operation, communicator, nth
    HAVING bool_and(p.analysed)
),
carried AS (
    -- Data moves in one direction only, so late ranks find it in their buffers already: no bandwidth.
    SELECT
        *,
        CASE
            WHEN last_rank IS NULL OR operation NOT IN ('Broadcast', 'Reduce', 'Gather', 'Scatter')
                THEN transfer_ns
        END AS carried_ns
    FROM sums
)
SELECT
    job,
    operation,
    communicator,
    nth,
    ranks,
    first_start_ns,
    last_start_ns,
    end_ns,
    transfer_ns,
    waiting_ns,
    last_rank,
    bytes,
    bytes / nullif(carried_ns / 1e9, 0) AS algorithm_bytes_per_s,
    bus_bytes / nullif(carried_ns / 1e9, 0) AS bus_bytes_per_s,
    together
FROM carried
ORDER BY job, first_start_ns, operation, communicator, nth;
