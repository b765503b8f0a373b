-- Each rank's part in the collectives of its groups that all captured ranks share: when it arrived after the
-- median rank, and how long it waited.
-- @materialize
CREATE VIEW _group_waits AS
WITH aligned AS (
    SELECT
        p.job, p.rank, p.report_id, p.track, p.device, p.op_id, p.operation, p.communicator, p.nth, p.dur_ns,
        p.window_id,
        p.start_ns + c.offset_ns AS at_ns
    FROM _paired AS p
    JOIN _clocks AS c USING (job, report_id)
    WHERE p.analysed
)
SELECT
    a.*,
    w.step,
    a.dur_ns - c.transfer_ns AS waiting_ns,
    c.transfer_ns,
    c.last_rank,
    -- Of two ranks the first is the median: the other one is late.
    greatest(0, a.at_ns - quantile_disc(a.at_ns, 0.5) OVER (
        PARTITION BY a.job, a.communicator, a.operation, a.nth
    )) AS late_ns
FROM aligned AS a
JOIN paired_collectives AS c ON c.job = a.job AND c.operation = a.operation AND c.nth = a.nth
    AND c.communicator IS NOT DISTINCT FROM a.communicator
JOIN _step_windows AS w ON w.track = a.track AND w.window_id = a.window_id;
