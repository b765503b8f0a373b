-- Operations clipped to the windows they touch: positive ones follow one another (steps and what lies
-- between), negative ones were selected.  From *_from on, an operation adds to the union of all
-- operations, of compute, of kernels.
CREATE VIEW _windowed_ops AS
WITH begun AS (
    -- Windows do not overlap, so an operation begins in exactly one; few extend into the next.
    SELECT o.*, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns
    FROM _ops AS o
    JOIN _step_windows AS w ON w.track = o.track AND w.window_id = o.window_id
),
windowed AS (
    SELECT *
    FROM begun
    UNION ALL
    SELECT
        o.* EXCLUDE (window_start_ns, window_end_ns) REPLACE (w.window_id AS window_id),
        w.start_ns,
        w.end_ns
    FROM begun AS o
    JOIN _step_windows AS w ON w.track = o.track AND w.start_ns > o.start_ns AND w.start_ns < o.end_ns
    WHERE o.end_ns > o.window_end_ns
    UNION ALL
    SELECT o.* REPLACE (w.window_id AS window_id), w.start_ns, w.end_ns
    FROM _ops AS o
    JOIN _chosen_windows AS w
        ON w.track = o.track AND o.start_ns < w.end_ns AND (o.end_ns > w.start_ns OR o.start_ns = w.start_ns)
)
SELECT
    track,
    window_id,
    class,
    greatest(start_ns, window_start_ns) AS start_ns,
    least(end_ns, window_end_ns) AS end_ns,
    greatest(start_ns, window_start_ns, busy_until) AS busy_from,
    greatest(start_ns, window_start_ns, compute_until) AS compute_from,
    greatest(start_ns, window_start_ns, kernels_until) AS kernels_from
FROM windowed;
