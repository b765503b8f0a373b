-- Reports of which nsys says that it failed to process events, with the share of CUDA's events that are
-- missing, %; NULL if it does not say how many there were.  What failed may be the names of ranges alone.
CREATE VIEW _unprocessed AS
WITH failed AS (
    SELECT DISTINCT report_id
    FROM nsys_diagnostics
    WHERE severity IN ('Warning', 'Error') AND text LIKE '%ProcessEventsError%'
),
produced AS (
    SELECT report_id, sum(regexp_extract(text, '(\d+)', 1)::BIGINT)::BIGINT AS events
    FROM nsys_diagnostics
    WHERE regexp_matches(text, '^Number of CUPTI events produced:\s*\d')
    GROUP BY report_id
),
kept AS (
    SELECT report_id, count(*) AS events
    FROM (
        SELECT report_id FROM nsys_api_calls
        UNION ALL
        SELECT report_id FROM nsys_kernels
        UNION ALL
        SELECT report_id FROM nsys_memory_ops
        UNION ALL
        SELECT report_id FROM nsys_syncs
        UNION ALL
        SELECT report_id FROM nsys_cuda_events
        UNION ALL
        SELECT report_id FROM nsys_graph_launches
    )
    SEMI JOIN failed USING (report_id)
    GROUP BY report_id
)
SELECT f.report_id, 100.0 * greatest(p.events - coalesce(k.events, 0), 0) / nullif(p.events, 0) AS missing_pct
FROM failed AS f
LEFT JOIN produced AS p USING (report_id)
LEFT JOIN kept AS k USING (report_id);
