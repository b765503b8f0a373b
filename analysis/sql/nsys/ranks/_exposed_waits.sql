-- Time that each rank waits in a job's collectives while no compute kernel runs on its GPU, within the
-- analyzed window. Waiting is what a collective takes in excess of the transfer time, from its start on the
-- rank. Waiting in collectives that run at the same time counts once, because it is at most the exposed
-- communication.
-- @materialize
CREATE VIEW _exposed_waits AS
WITH waits AS (
    SELECT
        p.job,
        p.rank,
        p.report_id,
        p.track,
        p.device,
        p.op_id,
        p.start_ns,
        p.end_ns - c.transfer_ns AS until_ns
    FROM _paired AS p
    JOIN paired_collectives AS c ON c.job = p.job AND c.operation = p.operation AND c.nth = p.nth
        AND c.communicator IS NOT DISTINCT FROM p.communicator
    WHERE p.end_ns - c.transfer_ns > p.start_ns
),
covered AS (
    SELECT
        w.track,
        w.op_id,
        sum(
            greatest(
                0,
                least(o.end_ns, w.until_ns) - greatest(o.start_ns, coalesce(o.compute_until, 0), w.start_ns)
            )
        ) AS ns
    FROM waits AS w
    JOIN _ops AS o
        ON o.track = w.track AND o.class = 'compute' AND o.start_ns < w.until_ns AND o.end_ns > w.start_ns
    GROUP BY w.track, w.op_id
),
sums AS (
    SELECT
        w.job,
        w.rank,
        w.report_id,
        w.device,
        sum(w.until_ns - w.start_ns - coalesce(c.ns, 0)) AS waiting_ns
    FROM waits AS w
    LEFT JOIN covered AS c USING (track, op_id)
    GROUP BY w.job, w.rank, w.report_id, w.device
)
SELECT
    s.job,
    s.rank,
    s.report_id,
    s.device,
    least(s.waiting_ns, b.time_ns)::BIGINT AS waiting_ns,
    100.0 * least(s.waiting_ns, b.time_ns) / nullif(w.time_ns, 0) AS window_pct
FROM sums AS s
JOIN gpu_time_budget AS b
    ON b.report_id = s.report_id AND b.device IS NOT DISTINCT FROM s.device AND b.category = 'communication'
JOIN analysis_windows AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device;
