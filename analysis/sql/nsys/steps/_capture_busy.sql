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
        max(c.end_ns) - min(c.start_ns) AS dur_ns,
        any_value(s.start_ns) AS first_ns,
        any_value(s.end_ns) AS last_ns
    FROM _capture_phases AS c
    JOIN _spans AS s USING (track)
    GROUP BY c.report_id, c.device, c.track
    HAVING max(c.end_ns) > min(c.start_ns)
),
parts AS (
    SELECT
        *,
        start_ns + dur_ns * part // 240 AS from_ns,
        start_ns + dur_ns * (part + 1) // 240 AS until_ns
    FROM (SELECT *, unnest(range(240)) AS part FROM captures)
),
gaps AS (
    SELECT
        c.track,
        c.start_ns,
        c.dur_ns,
        greatest(g.start_ns, c.first_ns) AS begin_ns,
        least(g.start_ns + g.dur_ns, c.last_ns) AS stop_ns
    FROM _gaps AS g
    JOIN captures AS c USING (track)
),
pieces AS (
    SELECT
        *,
        unnest(range(
            (begin_ns - start_ns) * 240 // dur_ns, least((stop_ns - start_ns) * 240 // dur_ns, 239) + 1
        )) AS part
    FROM gaps
    WHERE stop_ns > begin_ns
),
idle AS (
    SELECT
        track,
        part,
        sum(greatest(least(g.stop_ns, p.until_ns) - greatest(g.begin_ns, p.from_ns), 0))::BIGINT AS idle_ns
    FROM pieces AS g
    JOIN parts AS p USING (track, part)
    GROUP BY track, part
)
SELECT
    p.report_id,
    p.device,
    p.start_ns,
    p.end_ns,
    list(
        100.0
        * greatest(
            least(p.last_ns, p.until_ns) - greatest(p.first_ns, p.from_ns) - coalesce(i.idle_ns, 0), 0
        )
        / greatest(p.until_ns - p.from_ns, 1)
        ORDER BY p.part
    ) AS parts_pct
FROM parts AS p
LEFT JOIN idle AS i USING (track, part)
GROUP BY p.report_id, p.device, p.start_ns, p.end_ns
ORDER BY p.report_id, p.device;
