-- Intervals during which a GPU is in use for less than half of the time (thresholds
-- analyze.utilisation_pct and analyze.chunks), least used first, as in `nsys analyze -r gpu_time_util`.
-- The time from the first to the last operation is divided into thirty equal chunks, and adjacent chunks
-- with low utilization are merged. Overlapping operations count once, whereas nsys adds up their
-- durations.
--
-- report_id VARCHAR: report
-- in_use_pct DOUBLE: percentage of the interval during which an operation runs, rounded to 0.1
-- duration_ns BIGINT: duration of the interval, ns
-- start_ns BIGINT: start of the interval, ns
-- device BIGINT: physical GPU number
CREATE VIEW rule_gpu_time_util AS
WITH bounds AS (
    SELECT
        track,
        start_ns AS first_ns,
        end_ns AS last_ns,
        ceil((end_ns - start_ns) / threshold('analyze.chunks'))::BIGINT AS chunk_ns
    FROM _spans
),
chunks AS (
    SELECT
        track,
        i AS chunk,
        first_ns + i * chunk_ns AS start_ns,
        least(first_ns + (i + 1) * chunk_ns, last_ns) AS end_ns
    FROM bounds, range(threshold('analyze.chunks')::BIGINT) AS r (i)
    WHERE chunk_ns > 0 AND first_ns + i * chunk_ns < last_ns
),
busy AS (
    SELECT track, greatest(start_ns, coalesce(busy_until, start_ns)) AS start_ns, end_ns
    FROM _ops
    WHERE end_ns > coalesce(busy_until, start_ns)
),
used AS (
    SELECT
        c.track,
        c.chunk,
        c.start_ns,
        c.end_ns,
        coalesce(sum(overlap_ns(c.start_ns, c.end_ns, b.start_ns, b.end_ns)), 0) AS used_ns
    FROM chunks AS c
    LEFT JOIN busy AS b ON b.track = c.track AND b.start_ns < c.end_ns AND b.end_ns > c.start_ns
    GROUP BY c.track, c.chunk, c.start_ns, c.end_ns
),
low AS (
    SELECT *, chunk - row_number() OVER (PARTITION BY track ORDER BY chunk) AS stretch
    FROM used
    WHERE 100.0 * used_ns < threshold('analyze.utilisation_pct') * (end_ns - start_ns)
)
SELECT
    t.report_id,
    round_tenth(100.0 * sum(l.used_ns) / sum(l.end_ns - l.start_ns)) AS in_use_pct,
    sum(l.end_ns - l.start_ns)::BIGINT AS duration_ns,
    min(l.start_ns) AS start_ns,
    t.device
FROM low AS l
JOIN _gpus AS t USING (track)
GROUP BY t.report_id, t.device, l.track, l.stretch
ORDER BY t.report_id, in_use_pct, start_ns, t.device;
