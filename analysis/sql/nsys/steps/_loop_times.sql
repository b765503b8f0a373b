-- Duration of the loops of each period (launches per iteration) of a process on a GPU, and whether they are
-- its main loops: the longest loop at a time, and equal loops elsewhere (training between evaluations).
-- Autotuning repeats other sequences, but each for a short time. Pauses between two steps do not belong to
-- the loop. A sequence with almost none of the GPU's work, such as copies at program start, is not a loop.
-- @materialize
CREATE VIEW _loop_times AS
WITH loops AS (
    SELECT
        report_id,
        pid,
        device,
        period // repeats AS period,
        loop,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        count(*) * median(end_ns - start_ns) AS time_ns
    FROM launch_steps
    GROUP BY report_id, pid, device, period // repeats, loop
),
periods AS (
    SELECT
        l.report_id,
        l.pid,
        l.device,
        l.period,
        t.track,
        max(l.time_ns) AS time_ns,
        min(l.start_ns) AS start_ns,
        max(l.end_ns) AS end_ns
    FROM loops AS l
    JOIN _tracks AS t
        ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device IS NOT DISTINCT FROM l.device
    GROUP BY ALL
),
working AS (
    SELECT p.track, p.pid, p.period
    FROM periods AS p
    JOIN _classed_ops AS o USING (track, pid)
    GROUP BY p.track, p.pid, p.period
    HAVING 100 * sum(o.end_ns - o.start_ns) FILTER (o.start_ns >= p.start_ns AND o.start_ns < p.end_ns)
        >= threshold('timeline.loop_work_pct') * sum(o.end_ns - o.start_ns)
)
SELECT
    report_id,
    pid,
    device,
    period,
    row_number() OVER (PARTITION BY report_id, pid, device ORDER BY time_ns DESC, period) = 1 AS main
FROM periods
SEMI JOIN working USING (track, pid, period);
