-- Part of each communication kernel during which no compute kernel runs on its GPU, ns.
-- @materialize
CREATE VIEW _exposed_ops AS
WITH covering AS (
    SELECT
        track,
        greatest(start_ns, coalesce(compute_until, start_ns)) AS start_ns,
        end_ns,
        sum(beyond_ns(start_ns, end_ns, compute_until)) OVER (
            PARTITION BY track ORDER BY start_ns, end_ns, op_id
        ) AS total_ns
    FROM _ops
    WHERE class = 'compute' AND beyond_ns(start_ns, end_ns, compute_until) > 0
),
borders AS (
    SELECT track, report_id, op_id, unnest([start_ns, end_ns]) AS at_ns, unnest([-1, 1]) AS sign
    FROM _group_ops
),
covered AS (
    SELECT b.report_id, b.op_id, sum(b.sign * (c.total_ns - greatest(0, c.end_ns - b.at_ns)))::BIGINT AS ns
    FROM borders AS b
    ASOF JOIN covering AS c ON c.track = b.track AND c.start_ns <= b.at_ns
    GROUP BY b.report_id, b.op_id
)
SELECT o.job, o.rank, o.group_id, o.report_id, o.op_id, o.dur_ns - coalesce(c.ns, 0) AS exposed_ns
FROM _group_ops AS o
LEFT JOIN covered AS c USING (report_id, op_id);
