-- A job's collectives, matched across ranks, in the columns of paired_collectives. `analysed` marks those
-- that begin in the analyzed window on every rank, `settled` those that begin in windows of which lateness
-- is known.
-- @materialize
CREATE VIEW _pairs AS
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
        max(at_ns) <= min(until_ns) + max(residual_ns) AS together,
        bool_and(p.analysed) AS analysed,
        bool_and(p.settled) AS settled
    FROM aligned AS p
    GROUP BY job, operation, communicator, nth
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
    together,
    analysed,
    settled
FROM carried;
