-- GPU models on which the work of each report ran.
CREATE VIEW _used_gpus AS
WITH found AS (
    SELECT u.report_id, nullif(g.name, '') AS gpu, g.sm_count
    FROM _gpus AS u
    JOIN nsys_gpus AS g ON g.report_id = u.report_id AND g.gpu = u.device
    UNION
    SELECT report_id, device_name, NULL::BIGINT
    FROM ncu_launches
)
SELECT
    r.report_id,
    coalesce(f.gpu, r.gpu) AS gpu,
    max(coalesce(f.sm_count, CASE WHEN f.gpu IS NULL OR f.gpu = r.gpu THEN r.sm_count END)) AS sm_count
FROM reports AS r
LEFT JOIN found AS f ON f.report_id = r.report_id AND f.gpu IS NOT NULL
WHERE nullif(coalesce(f.gpu, r.gpu), '') IS NOT NULL
GROUP BY ALL;
