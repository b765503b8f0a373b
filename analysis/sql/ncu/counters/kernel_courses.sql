-- Activity over the course of each kernel, from PM sampling, in 20 parts of equal duration. The rows are the
-- SMs, the three busiest hardware units, and every unit that is the busiest in at least one part. Launches
-- for which kernel_activity gives a reason have no rows.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- unit VARCHAR: hardware unit: sm, or a unit as in kernel_activity_parts
-- rank BIGINT: rank of the unit by mean activity: 0 for the SMs, then 1 for the busiest unit
-- mean_pct DOUBLE: mean activity: % of the plateau for the SMs, % of peak for other units
-- max_pct DOUBLE: activity in the unit's busiest part: % of the plateau for the SMs, % of peak for other
--   units
-- course VARCHAR: activity over time as a text bar chart, with one bar per part, in steps of 12.5 %
-- parts_pct DOUBLE[]: activity in each part, % of the plateau for the SMs, % of peak for other units
-- leads BIGINT[]: indices of the parts in which the unit is the busiest, as in kernel_phases; for the SMs,
--   indices of the parts in which the SMs are idle
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
