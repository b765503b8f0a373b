-- When each rank arrived at each of a job's collectives, on the job's clock (paired_collectives).
--
-- job VARCHAR: job, as in job_ranks
-- place BIGINT: position of the collective by waiting time summed over the job's ranks, from 1 for the
--   longest
-- operation VARCHAR: operation, such as AllReduce or AllGather
-- communicator VARCHAR: NCCL communicator; NULL if the export does not contain payloads
-- nth BIGINT: sequence number of the operation in the communicator; 1 is the first in the capture
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- start_ns BIGINT: start of the rank's kernel on the job's clock, ns
-- late_ns BIGINT: delay of start_ns relative to the first rank to arrive, ns
-- dur_ns BIGINT: duration of the rank's kernel, ns
-- waiting_ns BIGINT: waiting time: duration of the rank's kernel in excess of the transfer time, ns
-- last BOOLEAN: whether the rank arrived last; NULL if the arrivals are closer together than the clock error
CREATE VIEW collective_arrivals AS
WITH ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY job ORDER BY waiting_ns DESC, first_start_ns, operation, communicator, nth
        ) AS place
    FROM paired_collectives
)
SELECT
    p.job,
    r.place,
    p.operation,
    p.communicator,
    p.nth,
    p.rank,
    p.report_id,
    p.device,
    p.start_ns + c.offset_ns AS start_ns,
    p.start_ns + c.offset_ns - r.first_start_ns AS late_ns,
    p.dur_ns,
    p.dur_ns - r.transfer_ns AS waiting_ns,
    p.rank = r.last_rank AS last
FROM _paired AS p
JOIN _clocks AS c USING (job, report_id)
JOIN ranked AS r
    ON r.job = p.job AND r.operation = p.operation AND r.nth = p.nth
        AND r.communicator IS NOT DISTINCT FROM p.communicator
ORDER BY p.job, r.place, p.rank;
