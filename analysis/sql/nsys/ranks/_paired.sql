-- Participants of each collective of a job: the n-th operation on every rank is one collective, per
-- communicator if it is known. Collectives with different numbers of ranks, and send and receive, are not
-- paired.
-- @materialize
CREATE VIEW _paired AS
WITH numbered AS (
    SELECT
        r.job,
        r.rank,
        r.started_ns,
        c.*,
        row_number() OVER (
            PARTITION BY c.report_id, c.track, c.pid, c.communicator, c.operation ORDER BY c.start_ns, c.op_id
        ) AS nth,
        count(*) OVER (PARTITION BY c.report_id, c.track, c.pid, c.communicator, c.operation) AS times
    FROM _collectives AS c
    JOIN _job_ranks AS r USING (report_id, track, pid)
    WHERE c.operation != 'SendRecv'
)
SELECT
    * EXCLUDE (times),
    count(*) OVER participants AS participants,
    dense_rank() OVER (PARTITION BY job ORDER BY coalesce(communicator, ''), operation, nth) AS pair
FROM numbered
WINDOW participants AS (PARTITION BY job, communicator, operation, nth)
QUALIFY count(*) OVER participants > 1
    AND min(times) OVER (PARTITION BY job, communicator, operation)
        = max(times) OVER (PARTITION BY job, communicator, operation);
