-- NVIDIA's rules, as far as their conditions can be computed from the metrics.  Estimated speedups
-- are shares of the run time and overlap: never add them.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- rule VARCHAR: rule identifier, such as CPIStall
-- section VARCHAR: section whose metrics it uses
-- title VARCHAR: title of NVIDIA's result; NULL if it has none
-- subject VARCHAR: what it is about: a stall reason, a pipe, a kind of access; NULL for the whole kernel
-- type VARCHAR: OPT or INF, as in ncu
-- speedup_kind VARCHAR: local (of the analyzed unit), global (of the kernel) or NULL
-- speedup_pct DOUBLE: speedup estimated by NVIDIA's formula, % of the run time
-- metric VARCHAR: metric that was compared
-- value DOUBLE: its value
-- threshold DOUBLE: threshold it was compared with
CREATE VIEW kernel_rules_recomputed AS
WITH every AS (
    SELECT * EXCLUDE (cap) FROM _rule_issue
    UNION ALL BY NAME
    SELECT * FROM _rule_launch
    UNION ALL BY NAME
    SELECT * FROM _rule_units
)
SELECT
    report_id,
    launch_id,
    rule,
    section,
    title,
    subject,
    type,
    speedup_kind,
    speedup_pct,
    metric,
    value,
    threshold
FROM every
ORDER BY report_id, launch_id, rule, subject;
