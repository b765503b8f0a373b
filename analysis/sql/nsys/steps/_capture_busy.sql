-- How busy each GPU is over its whole capture (_capture_phases), which is divided into 240 parts of equal
-- length: percentage of each part in which an operation runs.
CREATE VIEW _capture_busy AS
WITH captures AS (
    SELECT
        c.report_id,
        c.device,
        c.track,
        min(c.start_ns) AS start_ns,
        max(c.end_ns) AS end_ns,
        (max(c.end_ns) - min(c.start_ns)) / 240.0 AS part_ns,
        any_value(s.start_ns) AS first_ns,
        any_value(s.end_ns) AS last_ns
    FROM _capture_phases AS c
    JOIN _spans AS s USING (track)
    GROUP BY c.report_id, c.device, c.track
    HAVING max(c.end_ns) > min(c.start_ns)
),
gaps AS (
    SELECT
        c.track,
        c.start_ns,
        c.part_ns,
        greatest(g.start_ns, c.first_ns) AS from_ns,
        least(g.start_ns + g.dur_ns, c.last_ns) AS until_ns
    FROM _gaps AS g
    JOIN captures AS c USING (track)
),
pieces AS (
    SELECT
        *,
        unnest(range(
            floor((from_ns - start_ns) / part_ns)::BIGINT,
            least(floor((until_ns - start_ns) / part_ns)::BIGINT, 239) + 1
        )) AS part
    FROM gaps
    WHERE until_ns > from_ns
),
idle AS (
    SELECT
        track,
        part,
        sum(greatest(
            least(until_ns, start_ns + (part + 1) * part_ns) - greatest(from_ns, start_ns + part * part_ns), 0
        )) AS idle_ns
    FROM pieces
    GROUP BY track, part
),
parts AS (
    SELECT *, unnest(range(240)) AS part
    FROM captures
)
SELECT
    p.report_id,
    p.device,
    p.start_ns,
    p.end_ns,
    list(
        100 * greatest(
            least(p.last_ns, p.start_ns + (p.part + 1) * p.part_ns)
            - greatest(p.first_ns, p.start_ns + p.part * p.part_ns)
            - coalesce(i.idle_ns, 0),
            0
        ) / p.part_ns
        ORDER BY p.part
    ) AS parts_pct
FROM parts AS p
LEFT JOIN idle AS i USING (track, part)
GROUP BY p.report_id, p.device, p.start_ns, p.end_ns
ORDER BY p.report_id, p.device;
