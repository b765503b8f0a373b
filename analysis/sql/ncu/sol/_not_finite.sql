-- Metrics that ncu printed as nan or infinity, by canonical name: these metrics have no value, although they
-- were collected.
CREATE VIEW _not_finite AS
SELECT
    l.report_id,
    l.launch_id,
    c.name,
    any_value(regexp_extract(lower(m.text), 'nan|inf') ORDER BY c.rank) AS printed
FROM ncu_metrics AS m
JOIN metric_catalogue AS c USING (metric)
JOIN ncu_launches AS l USING (report_id, launch_id)
WHERE m.value IS NULL
    AND regexp_full_match(lower(m.text), '(\(!\) )?[-+]?(nan|inf)')
    AND coalesce(cc_number(l.cc) BETWEEN c.cc_low AND c.cc_high, true)
GROUP BY l.report_id, l.launch_id, c.name;
