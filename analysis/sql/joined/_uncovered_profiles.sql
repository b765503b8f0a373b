-- ncu reports that say little about the timelines of the query, because they profile little of the kernel
-- time of their timelines, or because they were ingested by hand and belong to no timeline.
-- `coverage_pct` is the profiled share of the kernel time, NULL for a report that belongs to no timeline.
CREATE VIEW _uncovered_profiles AS
WITH alone AS (
    SELECT report_id, kind
    FROM reports
    ANTI JOIN (SELECT unnest(reports) AS report_id FROM run_tasks) USING (report_id)
),
covered AS (
    SELECT p.ncu_report_id AS report_id, max(c.coverage_pct) AS coverage_pct
    FROM _report_pairs AS p
    JOIN step_coverage AS c USING (report_id)
    GROUP BY p.ncu_report_id
)
SELECT report_id, coverage_pct
FROM covered
WHERE coverage_pct < threshold('plan.least_pct')
UNION ALL
SELECT report_id, NULL
FROM alone
WHERE kind = 'ncu'
    AND report_id NOT IN (SELECT ncu_report_id FROM _report_pairs)
    AND report_id IN (SELECT report_id FROM kernel_sol)
    AND EXISTS (SELECT 1 FROM alone WHERE kind = 'nsys');
