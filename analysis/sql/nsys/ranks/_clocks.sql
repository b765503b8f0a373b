-- Conversion of a report's times to the clock of its job, which starts at the beginning of the first capture:
-- the difference of the starts, corrected so that collectives end at the same time (they end on all ranks
-- within microseconds).
-- @materialize
CREATE VIEW _clocks AS
WITH starts AS (
    SELECT job, report_id, arg_min(report_id, rank) OVER (PARTITION BY job) AS reference, rank,
        coalesce(started_ns - min(started_ns) OVER (PARTITION BY job), 0) AS start_ns
    FROM _job_ranks
),
reports AS (
    SELECT DISTINCT job, report_id, reference, start_ns
    FROM starts
),
ends AS (
    SELECT p.job, p.report_id, p.pair, avg(p.end_ns + r.start_ns) AS end_ns
    FROM _paired AS p
    JOIN reports AS r USING (job, report_id)
    WHERE p.operation IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll')
    GROUP BY p.job, p.report_id, p.pair
),
differences AS (
    SELECT r.job, r.report_id, f.end_ns - e.end_ns AS late_ns
    FROM reports AS r
    JOIN ends AS e USING (job, report_id)
    JOIN ends AS f ON f.job = r.job AND f.pair = e.pair AND f.report_id = r.reference
    WHERE r.report_id != r.reference
),
shifts AS (
    SELECT job, report_id, median(late_ns) AS shift_ns, mad(late_ns) AS residual_ns
    FROM differences
    GROUP BY job, report_id
)
SELECT
    r.job,
    r.report_id,
    round(r.start_ns + coalesce(s.shift_ns, 0))::BIGINT AS offset_ns,
    round(s.shift_ns)::BIGINT AS shift_ns,
    s.residual_ns
FROM reports AS r
LEFT JOIN shifts AS s USING (job, report_id);
