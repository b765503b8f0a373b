-- NVIDIA's rules for schedulers and warps: SOLBottleneck, IssueSlotUtilization, CPIStall, ThreadDivergence.
-- The estimate of IssueSlotUtilization caps the estimates of the rules that depend on it; these capped
-- estimates are global, that is, for the whole kernel.
CREATE VIEW _rule_issue AS
WITH slots AS (
    SELECT
        w.*,
        s.max_sol_pct,
        sol_bottleneck(s.compute_sol_pct, s.memory_sol_pct, s.waves) AS title,
        CASE
            WHEN w.issue_active_pct < 100 * threshold('rule.issue_slot')
                THEN least(100 - w.issue_active_pct, 100 - coalesce(s.max_sol_pct, 0))
        END AS cap
    FROM kernel_metrics AS w
    JOIN kernel_sol AS s USING (report_id, launch_id)
)
SELECT
    report_id,
    launch_id,
    'SOLBottleneck' AS rule,
    'SpeedOfLight' AS section,
    title,
    title AS subject,
    CASE WHEN title IN ('High Throughput', 'Balanced Throughput') THEN 'INF' ELSE 'OPT' END AS type,
    NULL::VARCHAR AS speedup_kind,
    NULL::DOUBLE AS speedup_pct,
    'max of compute and memory SOL, %' AS metric,
    max_sol_pct AS value,
    threshold('sol.high_pct') AS threshold,
    cap
FROM slots
WHERE title IS NOT NULL
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'IssueSlotUtilization' AS rule,
    'SchedulerStats' AS section,
    'OPT' AS type,
    'local' AS speedup_kind,
    cap AS speedup_pct,
    'smsp__issue_active.avg.pct_of_peak_sustained_active' AS metric,
    issue_active_pct AS value,
    100 * threshold('rule.issue_slot') AS threshold,
    cap
FROM slots
WHERE cap IS NOT NULL
UNION ALL BY NAME
SELECT
    t.report_id,
    t.launch_id,
    'CPIStall' AS rule,
    'WarpStateStats' AS section,
    concat(
        array_to_string(
            list_transform(string_split(t.reason, '_'), lambda word: concat(upper(word[1]), word[2:])),
            ' '
        ),
        ' Stalls'
    ) AS title,
    t.reason AS subject,
    'OPT' AS type,
    CASE WHEN w.cap IS NULL THEN 'local' ELSE 'global' END AS speedup_kind,
    least(t.pct, w.cap) AS speedup_pct,
    concat(
        'smsp__average_warps_issue_stalled_',
        t.reason,
        '_per_issue_active.ratio of the latency, %'
    ) AS metric,
    t.pct AS value,
    100 * threshold('rule.cpi_stall') AS threshold,
    w.cap
FROM kernel_stalls AS t
JOIN slots AS w USING (report_id, launch_id)
WHERE w.issue_active_pct < 100 * threshold('rule.cpi_issue')
    AND t.cycles / nullif(w.warp_latency, 0) > threshold('rule.cpi_stall')
    AND t.reason != 'selected'
UNION ALL BY NAME
SELECT
    report_id,
    launch_id,
    'ThreadDivergence' AS rule,
    'WarpStateStats' AS section,
    'OPT' AS type,
    'global' AS speedup_kind,
    (1 - least(threads_per_inst, threads_pred_on_per_inst) / 32) * compute_sol_pct AS speedup_pct,
    'smsp__thread_inst_executed_pred_on_per_inst_executed.ratio' AS metric,
    least(threads_per_inst, threads_pred_on_per_inst) AS value,
    threshold('rule.threads') AS threshold,
    cap
FROM slots
WHERE least(threads_per_inst, threads_pred_on_per_inst) < threshold('rule.threads');
