-- What can be done about each GPU's time, the largest share first: the techniques of the knowledge base for every
-- contributor of 10 % or more.  A share bounds what removing it could save; kernels have kernel_findings.
--
-- report_id: report
-- device: GPU number of the machine
-- rank: 1 has the largest bound
-- bound: category of timeline_bottleneck that it is about
-- share_pct: its share of the window, %; at most that can be saved
-- technique: key in the knowledge base
-- difficulty: low, medium or high
-- confidence: that of the verdict
-- largest_gap: the longest idle interval of that category in words; NULL where it is not idle time
CREATE VIEW timeline_findings AS
WITH shares AS (
    SELECT
        b.report_id,
        b.device,
        b.confidence,
        unnest(from_json(b.evidence, '[{"category": "VARCHAR", "share_pct": "DOUBLE"}]')) AS item
    FROM timeline_bottleneck AS b
),
contributors AS (
    SELECT report_id, device, confidence, item.category AS bound, item.share_pct AS share_pct
    FROM shares
    WHERE item.share_pct >= threshold('timeline.contributor_pct')
),
longest AS (
    SELECT
        report_id,
        device,
        CASE WHEN cause IN ('launch_gap', 'launch_api', 'queued') THEN 'launch_overhead' ELSE cause END AS bound,
        arg_min(printf('%.1f us before %s', dur_ns / 1e3, next_name) || coalesce(' in ' || nvtx_range, '') || coalesce(', after ' || sync_name, ''), rank) AS text
    FROM gpu_idle_gaps
    GROUP BY ALL
)
SELECT
    c.report_id,
    c.device,
    row_number() OVER (PARTITION BY c.report_id, c.device ORDER BY c.share_pct DESC, t.rank) AS rank,
    c.bound,
    c.share_pct,
    t.technique,
    t.difficulty,
    c.confidence,
    l.text AS largest_gap
FROM contributors AS c
JOIN _techniques AS t USING (bound)
LEFT JOIN longest AS l USING (report_id, device, bound)
LEFT JOIN launch_summary AS s USING (report_id, device)
WHERE c.bound != 'compute'
    -- What comes from graphs already is not helped by graphs.
    AND (t.technique != 'cuda_graphs' OR s.graphs_save_pct >= threshold('timeline.contributor_pct'))
ORDER BY c.report_id, c.device, rank;
