-- Phases of each kernel, from PM sampling: consecutive parts (kernel_activity_parts) with the same busiest
-- unit. A phase is idle if SM activity is below half of the plateau.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- phase BIGINT: index of the phase, from 0
-- unit VARCHAR: busiest hardware unit in the phase, or idle; NULL if no other unit was sampled in the same
--   pass as the SMs
-- start_pct DOUBLE: start of the phase, % of the kernel's duration
-- end_pct DOUBLE: end of the phase, % of the kernel's duration
-- unit_pct DOUBLE: mean activity of the busiest unit, % of peak; NULL for idle phases
-- sm_pct DOUBLE: mean SM activity, % of the plateau
CREATE VIEW kernel_phases AS
WITH led AS (
    SELECT
        s.report_id,
        s.launch_id,
        s.part,
        s.pct AS sm_pct,
        CASE WHEN s.pct < 100 * threshold('series.half_share') THEN 'idle' ELSE u.unit END AS unit,
        u.pct
    FROM kernel_activity_parts AS s
    LEFT JOIN kernel_activity_parts AS u
        ON u.report_id = s.report_id AND u.launch_id = s.launch_id AND u.part = s.part AND u.rank = 1
    WHERE s.unit = 'sm'
),
changes AS (
    SELECT *, part = 0 OR unit IS DISTINCT FROM lag(unit) OVER w AS is_new
    FROM led
    WINDOW w AS (PARTITION BY report_id, launch_id ORDER BY part)
),
numbered AS (
    SELECT
        *,
        count(if(is_new, 1, NULL)) OVER (PARTITION BY report_id, launch_id ORDER BY part) - 1 AS phase
    FROM changes
)
SELECT
    report_id,
    launch_id,
    phase,
    any_value(unit) AS unit,
    100.0 * min(part) / threshold('series.parts') AS start_pct,
    100.0 * (max(part) + 1) / threshold('series.parts') AS end_pct,
    CASE WHEN any_value(unit) != 'idle' THEN avg(pct ORDER BY part) END AS unit_pct,
    avg(sm_pct ORDER BY part) AS sm_pct
FROM numbered
GROUP BY report_id, launch_id, phase
ORDER BY report_id, launch_id, phase;
