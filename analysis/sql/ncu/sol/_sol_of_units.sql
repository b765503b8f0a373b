-- The main constituents of the SOLs of launches for which the SOLs were not collected, where all constituents
-- were.
CREATE VIEW _sol_of_units AS
WITH wanted AS (
    SELECT
        l.report_id,
        l.launch_id,
        u.metric,
        u.side,
        count(*) OVER (PARTITION BY l.report_id, l.launch_id) AS units
    FROM ncu_launches AS l
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    JOIN _sol_units AS u ON cc_number(l.cc) BETWEEN u.cc_low AND u.cc_high
    WHERE w.compute_sol_pct IS NULL AND w.memory_sol_pct IS NULL
)
SELECT n.report_id, n.launch_id, n.side, n.metric, m.value AS pct
FROM wanted AS n
JOIN ncu_metrics AS m USING (report_id, launch_id, metric)
WHERE m.value IS NOT NULL
QUALIFY count(*) OVER (PARTITION BY n.report_id, n.launch_id) = n.units;
