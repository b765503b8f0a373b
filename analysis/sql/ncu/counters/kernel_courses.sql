-- The course of each kernel, from PM sampling, in 20 parts of equal length: the activity of the SMs, of its
-- three busiest units, and of those that are the busiest of a part.  Empty for a launch that
-- kernel_activity gives a reason for.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- unit VARCHAR: sm, or a unit as in kernel_activity_parts
-- rank BIGINT: 0 for the SMs, 1 for the unit that is busiest on the whole
-- mean_pct DOUBLE: mean activity: of the SMs, % of their plateau; of a unit, % of peak
-- max_pct DOUBLE: activity in its busiest part, likewise, %
-- course VARCHAR: the activity of each part as a bar: from an eighth of 100 % to all of it
-- parts_pct DOUBLE[]: the activity of each part, %
-- leads BIGINT[]: the parts, of 20, in which the unit is the busiest (of the SMs: in which they are idle), as
--   in kernel_phases
CREATE VIEW kernel_courses AS
WITH idle AS (
    SELECT report_id, launch_id, part, pct < 100 * threshold('series.half_share') AS idle
    FROM kernel_activity_parts
    WHERE unit = 'sm'
),
units AS (
    SELECT
        p.report_id,
        p.launch_id,
        p.unit,
        avg(p.pct ORDER BY p.part) AS mean_pct,
        max(p.pct) AS max_pct,
        string_agg(
            substr('▁▂▃▄▅▆▇█', least(floor(p.pct * 8 / 100), 7)::BIGINT + 1, 1),
            '' ORDER BY p.part
        ) AS course,
        list(round(p.pct, 1) ORDER BY p.part) AS parts_pct,
        list(p.part ORDER BY p.part) FILTER (if(p.unit = 'sm', i.idle, p.rank = 1 AND NOT i.idle)) AS leads
    FROM kernel_activity_parts AS p
    JOIN idle AS i USING (report_id, launch_id, part)
    GROUP BY p.report_id, p.launch_id, p.unit
)
SELECT
    report_id,
    launch_id,
    unit,
    row_number() OVER (
        PARTITION BY report_id, launch_id ORDER BY unit != 'sm', mean_pct DESC, unit
    ) - 1 AS rank,
    mean_pct,
    max_pct,
    course,
    parts_pct,
    coalesce(leads, []) AS leads
FROM units
QUALIFY rank <= 3 OR len(leads) > 0
ORDER BY report_id, launch_id, rank;
