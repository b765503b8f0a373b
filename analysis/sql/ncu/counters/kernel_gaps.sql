-- Metrics that the analyses use but that a report lacks, and how to collect them.
--
-- report_id VARCHAR: report
-- name VARCHAR: canonical name of the metric, which is also its column name in kernel_metrics
-- launches BIGINT: number of launches for which the metric is missing
-- of_launches BIGINT: number of launches in the report
-- collect_with VARCHAR: ncu option that collects the metric, or why the metric cannot be collected
-- doc VARCHAR: meaning of the metric
CREATE VIEW kernel_gaps AS
WITH launches AS (
    SELECT report_id, count(*) AS of_launches, max(cc_number(cc)) AS cc
    FROM ncu_launches
    GROUP BY report_id
),
held AS (
    SELECT m.report_id, c.name, count(DISTINCT m.launch_id) AS held
    FROM ncu_metrics AS m
    JOIN metric_catalogue AS c USING (metric)
    WHERE m.value IS NOT NULL
    GROUP BY m.report_id, c.name
),
wanted AS (
    SELECT
        name,
        any_value(section) AS section,
        any_value(doc) AS doc,
        list({low: cc_low, high: cc_high}) AS ranges
    FROM metric_catalogue
    -- The other metrics are only present if an older script requested them.
    WHERE section != 'metrics'
    GROUP BY name
)
SELECT
    l.report_id,
    w.name,
    l.of_launches - coalesce(h.held, 0) AS launches,
    l.of_launches,
    CASE
        WHEN NOT coalesce(
            list_bool_or(list_transform(w.ranges, lambda r: l.cc BETWEEN r.low AND r.high)), true
        )
            THEN 'not available on this compute capability'
        ELSE concat('ncu --section ', w.section)
    END AS collect_with,
    w.doc
FROM launches AS l
CROSS JOIN wanted AS w
LEFT JOIN held AS h ON h.report_id = l.report_id AND h.name = w.name
WHERE coalesce(h.held, 0) < l.of_launches
ORDER BY l.report_id, collect_with, w.name;
