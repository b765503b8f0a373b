-- GPU operations with the time until which earlier operations kept the device busy: what reaches
-- beyond it, summed, is the length of the union; and the window in which it began.
-- Rows are in order of track, start_ns, end_ns, op_id: with that, windows need neither sort nor look back.
-- @materialize
CREATE VIEW _ops AS
WITH begins AS (
    -- A window of zero length begins where the next one does.
    SELECT track, first_ns AS start_ns, max(window_id) AS begun
    FROM _step_windows
    GROUP BY track, first_ns
),
ordered AS (
    SELECT o.*, b.begun
    FROM _classed_ops AS o
    LEFT JOIN begins AS b ON b.track = o.track AND b.start_ns = o.start_ns
    ORDER BY o.track, o.start_ns, o.end_ns, o.op_id
),
reached AS (
    SELECT
        *,
        max(on_track(track, end_ns)) OVER so_far AS all_until,
        max(CASE WHEN class = 'compute' THEN on_track(track, end_ns) END) OVER so_far AS compute,
        max(CASE WHEN class = 'communication' THEN on_track(track, end_ns) END) OVER so_far AS communication,
        max(on_track(track, begun)) OVER so_far AS last_begun
    FROM ordered
    WINDOW so_far AS (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT
    * EXCLUDE (begun, all_until, compute, communication, last_begun),
    of_track(track, lag(all_until) OVER ()) AS busy_until,
    of_track(track, lag(compute) OVER ()) AS compute_until,
    of_track(track, lag(communication) OVER ()) AS communication_until,
    of_track(track, last_begun)::INTEGER AS window_id,
    greatest(compute_until, communication_until) AS kernels_until
FROM reached;
