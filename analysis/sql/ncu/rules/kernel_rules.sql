-- What NVIDIA's rules say of each launch: the report's own results, or, where a report holds none
-- (CSV raw page, --apply-rules no), those that can be recomputed.  Estimated speedups are shares of the
-- run time, nested in one another: never to be added up.
--
-- report_id: report
-- launch_id: launch
-- rule: rule identifier
-- section: section whose metrics it reads
-- title: title of the result
-- type: OPT, INF, WRN or ERR
-- speedup_kind: local (of the analysed unit), global (of the kernel) or NULL
-- speedup_pct: estimate, % of the run time
-- message: NVIDIA's text; NULL where recomputed
-- source: ncu or recomputed
-- secondary: whether the kernel already runs at 80 % SOL or more, or the state is no stall, so that
--   little is to be had
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
        -- Marking memory as compressible is what this rule asks for; it says nothing where none is.
        OR e.rule = 'MemoryL2Compression' AS secondary
FROM every AS e
LEFT JOIN kernel_sol AS s USING (report_id, launch_id)
ORDER BY e.report_id, e.launch_id, secondary, e.speedup_pct DESC NULLS LAST, e.rule, e.title, e.result_index;
