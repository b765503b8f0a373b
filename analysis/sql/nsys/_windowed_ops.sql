-- Operations clipped to the windows that they touch: window 0 is the whole of a device, from its first
-- operation to its last end; the others are steps.  The *_until columns say until when the device was
-- busy with operations that began before this one.  Computed once.
CREATE VIEW _windowed_ops AS
WITH clipped AS (
    SELECT *, 0 AS window_id
    FROM _gpu_ops
    UNION ALL
    SELECT
        o.* REPLACE (greatest(o.start_ns, w.start_ns) AS start_ns, least(o.end_ns, w.end_ns) AS end_ns),
        w.window_id::INTEGER
    FROM _gpu_ops AS o
    JOIN _step_windows AS w ON w.track = o.track AND o.start_ns < w.end_ns AND o.end_ns > w.start_ns
)
SELECT
    *,
    max(end_ns) OVER earlier AS busy_until,
    max(CASE WHEN class = 1 THEN end_ns END) OVER earlier AS compute_until,
    max(CASE WHEN class = 2 THEN end_ns END) OVER earlier AS communication_until,
    max(CASE WHEN class < 3 THEN end_ns END) OVER earlier AS kernels_until
FROM clipped
WINDOW earlier AS (
    PARTITION BY track, window_id ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);
