-- Main constituents of the SOLs, for launches whose SOLs were not collected, if all constituents were
-- collected (`whole`), or at least the constituents that ncu collects in one pass.
CREATE VIEW _sol_of_units AS
WITH wanted AS (
    SELECT l.report_id, l.launch_id, u.metric, u.side, u.one_pass
    FROM ncu_launches AS l
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    JOIN _sol_units AS u ON cc_number(l.cc) BETWEEN u.cc_low AND u.cc_high
    WHERE w.compute_sol_pct IS NULL AND w.memory_sol_pct IS NULL
)
SELECT
    n.report_id,
    n.launch_id,
    n.side,
    n.metric,
    m.value AS pct,
    bool_and(m.value IS NOT NULL) OVER (PARTITION BY n.report_id, n.launch_id) AS whole
FROM wanted AS n
LEFT JOIN ncu_metrics AS m USING (report_id, launch_id, metric)
QUALIFY m.value IS NOT NULL
    AND bool_and(m.value IS NOT NULL OR NOT n.one_pass) OVER (PARTITION BY n.report_id, n.launch_id);
