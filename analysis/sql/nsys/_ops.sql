-- GPU operations by what they do (class 1 computes, 2 communicates, 3 transfers) with until when the device was busy
-- with operations that began before: what reaches beyond that, added up, is the length of the union.
-- Computed once.
CREATE VIEW _ops AS
WITH classed AS (
    SELECT
        t.track,
        CASE
            WHEN l.kind IN ('memcpy', 'memset') THEN 3
            WHEN l.kind = 'kernel' AND is_communication(l.name) THEN 2
            ELSE 1
        END::TINYINT AS class,
        l.start_ns,
        l.end_ns,
        l.op_id,
        l.pid,
        l.tid,
        l.api_start_ns,
        -- A call without a recorded end lasted at least until what it launched began.
        CASE WHEN l.api_start_ns IS NOT NULL THEN coalesce(l.api_end_ns, greatest(l.api_start_ns, l.start_ns)) END AS api_end_ns
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid IS NOT DISTINCT FROM l.pid AND t.cuda_device IS NOT DISTINCT FROM l.device
    WHERE l.start_ns <= l.end_ns
)
SELECT
    *,
    max(end_ns) OVER earlier AS busy_until,
    max(CASE WHEN class = 1 THEN end_ns END) OVER earlier AS compute_until,
    max(CASE WHEN class = 2 THEN end_ns END) OVER earlier AS communication_until,
    max(CASE WHEN class < 3 THEN end_ns END) OVER earlier AS kernels_until
FROM classed
WINDOW earlier AS (
    PARTITION BY track ORDER BY start_ns, end_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);
