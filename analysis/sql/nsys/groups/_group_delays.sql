-- How much each rank delays its groups in each step, and how long it waits in them (_group_waits).
-- @materialize
CREATE VIEW _group_delays AS
WITH runs AS (
    SELECT
        job,
        rank,
        report_id,
        track,
        device,
        communicator,
        window_id,
        step,
        step_ns,
        run,
        count(*) AS collectives,
        max(late_ns) AS behind_ns,
        max(waiting_ns) AS waiting_ns
    FROM _group_waits
    GROUP BY ALL
)
SELECT
    job,
    rank,
    report_id,
    device,
    communicator,
    step,
    step_ns,
    sum(collectives)::BIGINT AS collectives,
    sum(behind_ns)::BIGINT AS behind_ns,
    sum(waiting_ns)::BIGINT AS waiting_ns
FROM runs
GROUP BY job, rank, report_id, track, device, communicator, window_id, step, step_ns;
