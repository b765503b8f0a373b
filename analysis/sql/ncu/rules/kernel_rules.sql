-- Results of NVIDIA's rules for each launch. If the report contains no results (CSV raw page, --apply-rules
-- no), the rules are recomputed where possible. Estimated speedups are shares of the run time and overlap: do
-- not add them.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- rule VARCHAR: rule identifier
-- section VARCHAR: ncu section with the rule's metrics
-- title VARCHAR: title of the rule result
-- type VARCHAR: type of the rule result: OPT, INF, WRN or ERR
-- speedup_kind VARCHAR: local (speedup of the analyzed hardware unit), global (speedup of the kernel) or NULL
-- speedup_pct DOUBLE: estimated speedup: share of the run time that could be saved, %
-- message VARCHAR: text of NVIDIA's rule result; NULL if the rule was recomputed
-- source VARCHAR: source of the rule result: ncu (stored in the report) or recomputed
-- secondary BOOLEAN: whether there is little to gain: the kernel already runs at 80 % SOL or more, the warp
--   state is not a stall, or the rule is MemoryL2Compression, which applies only to compressible memory
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
        -- This rule recommends to mark memory as compressible; it is meaningless without compressible memory.
        OR e.rule = 'MemoryL2Compression' AS secondary
FROM every AS e
LEFT JOIN kernel_sol AS s USING (report_id, launch_id)
ORDER BY e.report_id, e.launch_id, secondary, e.speedup_pct DESC NULLS LAST, e.rule, e.title, e.result_index;
