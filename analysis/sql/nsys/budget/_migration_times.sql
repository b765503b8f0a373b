-- Time in each window in which pages of unified memory migrate, or the driver handles page faults of the GPU,
-- ns: while compute kernels run, while only communication kernels run, and while no kernel runs (migrations
-- only). `own` rows only contain the process to which the window belongs.
--
-- The length of an intersection is the length of both sets minus the length of their union. Each interval is
-- therefore clipped to its windows and counted in the unions of all sets that contain it.
-- @materialize
CREATE VIEW _migration_times AS
WITH migrating AS (
    SELECT track FROM _page_waits
    UNION
    SELECT track FROM _migrations
),
windows AS (
    SELECT track, window_id, false AS own, NULL::BIGINT AS pid, 0 AS lane, start_ns, end_ns
    FROM _step_windows
    UNION ALL
    SELECT track, window_id, true, lane_pid, lane, start_ns, end_ns
    FROM _lane_windows
    WHERE lane_pid IS NOT NULL
),
long AS (
    FROM windows
    SEMI JOIN migrating USING (track)
    WHERE end_ns > start_ns
),
lanes AS (
    SELECT DISTINCT track, own, pid, lane
    FROM long
),
intervals AS (
    SELECT track, pid, start_ns, end_ns,
        CASE
            WHEN class = 'compute' THEN ['compute', 'kernels', 'or_compute', 'or_kernels', 'copies']
            WHEN class = 'communication' THEN ['kernels', 'or_kernels', 'copies']
            ELSE ['copies']
        END AS sets
    FROM _ops
    SEMI JOIN migrating USING (track)
    WHERE class != 'transfer' OR migrates
    UNION ALL
    SELECT track, pid, start_ns, end_ns, ['waits', 'or_compute', 'or_kernels']
    FROM _page_waits
),
placed AS (
    SELECT i.track, l.own, l.lane, i.start_ns, i.end_ns, i.sets
    FROM intervals AS i
    JOIN lanes AS l ON l.track = i.track AND (NOT l.own OR l.pid IS NOT DISTINCT FROM i.pid)
    WHERE i.end_ns > i.start_ns
),
begun AS (
    SELECT p.*, w.window_id, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns
    FROM placed AS p
    ASOF LEFT JOIN long AS w
        ON w.track = p.track AND w.own = p.own AND w.lane = p.lane AND w.start_ns <= p.start_ns
),
clipped AS (
    SELECT track, own, window_id, sets, start_ns, least(end_ns, window_end_ns) AS end_ns
    FROM begun
    WHERE window_id IS NOT NULL
    UNION ALL
    SELECT b.track, b.own, w.window_id, b.sets, w.start_ns, least(b.end_ns, w.end_ns)
    FROM begun AS b
    JOIN long AS w
        ON w.track = b.track AND w.own = b.own AND w.lane = b.lane
            AND w.start_ns > b.start_ns AND w.start_ns < b.end_ns
    WHERE coalesce(b.end_ns > b.window_end_ns, true)
    UNION ALL
    SELECT i.track, false, w.window_id, i.sets, greatest(i.start_ns, w.start_ns), least(i.end_ns, w.end_ns)
    FROM intervals AS i
    JOIN _chosen_windows AS w ON w.track = i.track AND i.start_ns < w.end_ns AND i.end_ns > w.start_ns
),
members AS (
    SELECT track, own, window_id, start_ns, end_ns, unnest(sets) AS member
    FROM clipped
    WHERE end_ns > start_ns
),
apart AS (
    SELECT track, own, window_id, member, beyond_ns(start_ns, end_ns, max(end_ns) OVER earlier) AS ns
    FROM members
    WINDOW earlier AS (
        PARTITION BY track, own, window_id, member
        ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
unions AS (
    SELECT
        track,
        own,
        window_id,
        coalesce(sum(ns) FILTER (member = 'waits'), 0) AS waits,
        coalesce(sum(ns) FILTER (member = 'compute'), 0) AS compute,
        coalesce(sum(ns) FILTER (member = 'kernels'), 0) AS kernels,
        coalesce(sum(ns) FILTER (member = 'or_compute'), 0) AS or_compute,
        coalesce(sum(ns) FILTER (member = 'or_kernels'), 0) AS or_kernels,
        coalesce(sum(ns) FILTER (member = 'copies'), 0) AS copies
    FROM apart
    GROUP BY track, own, window_id
)
SELECT
    track,
    own,
    window_id,
    (waits + compute - or_compute)::BIGINT AS compute_ns,
    (waits + kernels - or_kernels - compute_ns)::BIGINT AS communication_ns,
    (copies - kernels)::BIGINT AS alone_ns
FROM unions;
