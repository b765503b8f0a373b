-- Results of NVIDIA's rules for each launch: the report's own, or, if it has none (CSV raw page,
-- --apply-rules no), those that can be recomputed.  Estimated speedups are shares of the run time
-- and overlap: never add them.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- rule VARCHAR: rule identifier
-- section VARCHAR: section whose metrics it uses
-- title VARCHAR: title of the result
-- type VARCHAR: OPT, INF, WRN or ERR
-- speedup_kind VARCHAR: local (of the analyzed unit), global (of the kernel) or NULL
-- speedup_pct DOUBLE: estimated speedup, % of the run time
-- message VARCHAR: NVIDIA's text; NULL if recomputed
-- source VARCHAR: ncu or recomputed
-- secondary BOOLEAN: whether the kernel already runs at 80 % SOL or more, or the state is not a stall, so
--   that there is little to gain
CREATE VIEW kernel_rules AS
WITH own AS (
    SELECT
        report_id,
        launch_id,
        rule,
        section,
        title,
        type,
        speedup_kind,
        speedup_pct,
        message,
        'ncu' AS source,
        result_index
    FROM ncu_rules
    WHERE message IS NOT NULL OR title IS NOT NULL
),
every AS (
    SELECT * FROM own
    UNION ALL BY NAME
    SELECT
        r.report_id,
        r.launch_id,
        r.rule,
        r.section,
        r.title,
        r.type,
        r.speedup_kind,
        r.speedup_pct,
        'recomputed' AS source
    FROM kernel_rules_recomputed AS r
    ANTI JOIN own USING (report_id, launch_id)
)
SELECT
    e.report_id,
    e.launch_id,
    e.rule,
    e.section,
    e.title,
    e.type,
    e.speedup_kind,
    e.speedup_pct,
    e.message,
    e.source,
    coalesce(s.max_sol_pct >= threshold('finding.secondary_sol_pct'), false)
        OR coalesce(e.title IN ('Selected Stalls', 'Not Selected Stalls'), false)
        -- This rule asks to mark memory as compressible; it is meaningless if none is.
        OR e.rule = 'MemoryL2Compression' AS secondary
FROM every AS e
LEFT JOIN kernel_sol AS s USING (report_id, launch_id)
ORDER BY e.report_id, e.launch_id, secondary, e.speedup_pct DESC NULLS LAST, e.rule, e.title, e.result_index;
