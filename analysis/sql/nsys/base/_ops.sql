-- GPU operations with the time up to which earlier operations kept the device busy (the parts beyond it add
-- up to the length of the union), the window in which the operation began, and whether the next operation
-- begins before it ends.
-- @materialize
CREATE VIEW _ops AS
WITH begins AS (
    -- A window of zero length begins at the start of the next window.
    SELECT track, first_ns AS start_ns, max(window_id) AS begun
    FROM _step_windows
    GROUP BY track, first_ns
),
ordered AS (
    SELECT
        o.*,
        max(o.end_ns) OVER earlier AS busy_until,
        max(CASE WHEN o.class = 'compute' THEN o.end_ns END) OVER earlier AS compute_until,
        max(CASE WHEN o.class = 'communication' THEN o.end_ns END) OVER earlier AS communication_until,
        max(b.begun) OVER (
            PARTITION BY o.track ORDER BY o.start_ns, o.end_ns, o.op_id ROWS UNBOUNDED PRECEDING
        ) AS window_id,
        lead(o.start_ns) OVER (PARTITION BY o.track ORDER BY o.start_ns, o.end_ns, o.op_id) < o.end_ns
            AS beside_next
    FROM _classed_ops AS o
    LEFT JOIN begins AS b ON b.track = o.track AND b.start_ns = o.start_ns
    WINDOW earlier AS (
        PARTITION BY o.track
        ORDER BY o.start_ns, o.end_ns, o.op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT *, greatest(compute_until, communication_until) AS kernels_until
FROM ordered;
