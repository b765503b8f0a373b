-- Steps whose critical path is found: those of step_pictures, and up to eight consecutive analyzed steps
-- around the typical one, to replay (role several). The path belongs to the GPU of the job whose step takes
-- longest. Times are on the job's clock. `bounds_ns` are the starts of the steps, and the end of the last.
-- @materialize
CREATE VIEW _path_steps AS
WITH pictures AS (
    SELECT p.*, g.track, p.start_ns + p.offset_ns AS from_ns, p.end_ns + p.offset_ns AS until_ns
    FROM step_pictures AS p
    JOIN _gpus AS g ON g.report_id = p.report_id AND g.device IS NOT DISTINCT FROM p.device
),
longest AS (
    FROM pictures
    QUALIFY row_number() OVER (
        PARTITION BY job, role ORDER BY until_ns - from_ns DESC, report_id, device
    ) = 1
),
sizes AS (
    SELECT p.job, count(*) AS operations
    FROM pictures AS p
    JOIN _classed_ops AS o ON o.track = p.track AND o.start_ns >= p.start_ns AND o.start_ns < p.end_ns
    WHERE p.role = 'median'
    GROUP BY p.job
),
beside AS (
    SELECT
        l.job, l.report_id, l.device, l.track, l.step, l.name, l.offset_ns,
        w.start_ns + l.offset_ns AS from_ns,
        w.end_ns + l.offset_ns AS until_ns,
        w.window_id - m.window_id AS place,
        -- Consecutive windows have the same difference.
        w.window_id - row_number() OVER (PARTITION BY l.job ORDER BY w.window_id) AS island,
        least(8, greatest(1, threshold('critical.replayed_operations') // s.operations)) AS most
    FROM longest AS l
    JOIN _step_windows AS m ON m.track = l.track AND m.start_ns = l.start_ns AND m.step = l.step
    JOIN _step_windows AS w ON w.track = l.track
    JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id
    JOIN sizes AS s USING (job)
    WHERE l.role = 'median' AND w.step IS NOT NULL
),
several AS (
    FROM beside
    QUALIFY island = max(CASE WHEN place = 0 THEN island END) OVER (PARTITION BY job)
),
near AS (
    FROM several
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY abs(place), place DESC) <= most
)
SELECT job, role, report_id, device, track, step, name, from_ns, until_ns, [from_ns, until_ns] AS bounds_ns
FROM longest
UNION ALL
SELECT
    job, 'several', any_value(report_id), any_value(device), any_value(track), any_value(step),
    any_value(name), min(from_ns), max(until_ns), list_sort(list(from_ns)) || [max(until_ns)]
FROM near
GROUP BY job;
