-- PM samples of each unit, from the first to the last sample in which an SM was active.  A sample with
-- key 0 stands for no instant.  A unit may have several spellings, and the same series be sampled in
-- several passes: the first is read.
-- @materialize
CREATE VIEW _series_samples AS
WITH named AS (
    SELECT metric, regexp_replace(metric, '^(pmsampling:|\w+\.\w+\.)', '') AS plain
    FROM (SELECT DISTINCT metric FROM ncu_instances)
    WHERE regexp_matches(metric, '^(pmsampling:|\w+\.\w+\.)\w+__')
),
valued AS (
    SELECT
        i.report_id,
        i.launch_id,
        s.unit,
        i.key_int AS at_ns,
        arg_min(i.value, (s.rank, i.metric)) AS value
    FROM ncu_instances AS i
    JOIN named AS n USING (metric)
    JOIN _series_metrics AS s ON s.metric = n.plain
    WHERE i.key_int > 0 AND i.value IS NOT NULL
    GROUP BY i.report_id, i.launch_id, s.unit, i.key_int
),
span AS (
    SELECT report_id, launch_id, min(at_ns) AS first_ns, max(at_ns) AS last_ns
    FROM valued
    WHERE unit = 'sm' AND value > 0
    GROUP BY report_id, launch_id
)
SELECT v.report_id, v.launch_id, v.unit, v.at_ns, v.value
FROM valued AS v
JOIN span AS s USING (report_id, launch_id)
WHERE v.at_ns BETWEEN s.first_ns AND s.last_ns;
