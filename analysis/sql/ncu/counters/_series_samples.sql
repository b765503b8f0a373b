-- PM samples of each unit, from the first to the last sample with an active SM. Each pass replays the kernel,
-- so a unit counts only if it was sampled at the same times as the SMs. A sample with key 0 has no timestamp.
-- If a unit has several series, the first series is used.
-- @materialize
CREATE VIEW _series_samples AS
WITH named AS (
    SELECT metric, regexp_replace(metric, '^(pmsampling:|\w+\.\w+\.)', '') AS plain
    FROM (SELECT DISTINCT metric FROM ncu_instances)
    WHERE regexp_matches(metric, '^(pmsampling:|\w+\.\w+\.)\w+__')
),
samples AS (
    SELECT i.report_id, i.launch_id, s.unit, s.rank, i.metric, i.key_int AS at_ns, i.value
    FROM ncu_instances AS i
    JOIN named AS n USING (metric)
    JOIN _series_metrics AS s ON s.metric = n.plain
    WHERE i.key_int > 0 AND i.value IS NOT NULL
),
active AS (
    SELECT report_id, launch_id, metric, rank, min(at_ns) AS first_ns, max(at_ns) AS last_ns
    FROM samples
    WHERE unit = 'sm' AND value > 0
    GROUP BY report_id, launch_id, metric, rank
    QUALIFY row_number() OVER (PARTITION BY report_id, launch_id ORDER BY rank, metric) = 1
),
times AS (
    SELECT s.report_id, s.launch_id, s.at_ns, s.value
    FROM samples AS s
    JOIN active AS a USING (report_id, launch_id, metric)
    WHERE s.at_ns BETWEEN a.first_ns AND a.last_ns
)
SELECT report_id, launch_id, 'sm' AS unit, at_ns, value
FROM times
UNION ALL
SELECT s.report_id, s.launch_id, s.unit, s.at_ns, arg_min(s.value, (s.rank, s.metric)) AS value
FROM samples AS s
JOIN times AS t USING (report_id, launch_id, at_ns)
WHERE s.unit != 'sm'
GROUP BY s.report_id, s.launch_id, s.unit, s.at_ns;
