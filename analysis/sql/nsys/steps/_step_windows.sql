-- Consecutive windows of each GPU: steps of the process with the most work, and the time before, between and
-- after them. Without steps, the whole time is one window.
-- @materialize
CREATE VIEW _step_windows AS
WITH main AS (
    SELECT * EXCLUDE (lane, lane_pid, first_ns), first_ns AS begun_ns
    FROM _lane_windows
    WHERE lane = 1
),
-- Steps know their first operation; the time between steps begins at the end of the last operation.
following AS (
    SELECT p.track, p.start_ns, min(o.start_ns) AS first_ns
    FROM main AS p
    JOIN _classed_ops AS o ON o.track = p.track AND o.start_ns >= p.start_ns
    WHERE p.step IS NULL
    GROUP BY p.track, p.start_ns
)
SELECT
    p.* EXCLUDE (begun_ns),
    if(p.step IS NULL, f.first_ns, p.begun_ns) AS first_ns
FROM main AS p
LEFT JOIN following AS f ON f.track = p.track AND f.start_ns = p.start_ns AND p.step IS NULL;
