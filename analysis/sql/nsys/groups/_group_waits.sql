-- Each rank's part in the collectives of its groups that all captured ranks share, in windows of which
-- lateness is known: how long it waited, and how much longer than it the median rank was in the collective.
-- A collective ends at the same time on all ranks, so the rank that arrives last is in it for the shortest
-- time, whatever the clocks of the machines say. Collectives that queue behind the collective before,
-- without work between them, have the same `run` on each rank: they wait for the same lateness.
-- @materialize
CREATE VIEW _group_waits AS
WITH ends AS (
    SELECT DISTINCT track, end_ns
    FROM _ops
    WHERE class != 'communication'
),
ordered AS (
    SELECT
        *,
        lag(end_ns) OVER (
            PARTITION BY report_id, track, pid, communicator ORDER BY start_ns, op_id
        ) AS earlier_ns
    FROM _paired
),
timed AS (
    SELECT
        p.*,
        c.analysed AS compared,
        c.transfer_ns,
        w.step,
        w.end_ns - w.start_ns AS step_ns,
        -- Nothing that it may have waited for ended since the collective before.
        coalesce(p.earlier_ns >= e.end_ns, false) AS queued
    FROM ordered AS p
    JOIN _pairs AS c ON c.job = p.job AND c.operation = p.operation AND c.nth = p.nth
        AND c.communicator IS NOT DISTINCT FROM p.communicator
    JOIN _step_windows AS w ON w.track = p.track AND w.window_id = p.window_id
    ASOF LEFT JOIN ends AS e ON e.track = p.track AND e.end_ns <= p.start_ns
    WHERE c.settled
),
judged AS (
    SELECT
        *,
        first_value(queued) OVER (
            PARTITION BY job, communicator, operation, nth ORDER BY dur_ns DESC, rank
        ) AS follows,
        -- Of two ranks the one that waits longer is the median: the other one is late.
        -quantile_disc(-dur_ns, 0.5) OVER (PARTITION BY job, communicator, operation, nth) AS median_ns
    FROM timed
)
SELECT
    job,
    rank,
    report_id,
    track,
    device,
    operation,
    communicator,
    window_id,
    step,
    step_ns,
    compared AS analysed,
    dur_ns - transfer_ns AS waiting_ns,
    greatest(0, median_ns - dur_ns) AS late_ns,
    count(if(NOT follows, 1, NULL)) OVER (
        PARTITION BY job, rank, track, communicator, window_id ORDER BY start_ns, op_id
    ) AS run
FROM judged;
