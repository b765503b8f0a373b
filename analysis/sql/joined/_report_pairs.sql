-- Which ncu report explains which nsys report: those of the same run; reports that were ingested
-- by hand pair with each other.  Where both name their GPU it must be the same.
CREATE VIEW _report_pairs AS
SELECT nsys.report_id, ncu.report_id AS ncu_report_id
FROM reports AS nsys
LEFT JOIN reports AS ncu
    ON ncu.kind = 'ncu'
    AND ncu.run_id IS NOT DISTINCT FROM nsys.run_id
    AND coalesce(ncu.gpu = nsys.gpu, true)
    AND ncu.report_id IN (SELECT report_id FROM kernel_sol WHERE max_sol_pct IS NOT NULL)
WHERE nsys.kind = 'nsys';
