-- What can be done about each GPU's time, largest share first: the techniques of the knowledge base
-- for every contributor of 10 % or more.  The share is an upper bound on the saving; for kernels
-- see kernel_findings.
--
-- report_id: report
-- device: physical GPU number
-- rank: 1 has the largest bound
-- bound: category of timeline_bottleneck that it addresses
-- share_pct: share of the window, %: the most that can be saved
-- technique: key in the knowledge base
-- difficulty: low, medium or high
-- confidence: confidence of the verdict
-- largest_gap: the longest idle interval of that category in words; NULL if the category is not
--   idle time
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
    SELECT track, timeline_bound(cause) AS bound, arg_max(op_id, (dur_ns, -start_ns)) AS op_id
    FROM _gaps
    GROUP BY ALL
),
worded AS (
    SELECT
        t.report_id,
        t.device,
        l.bound,
        concat(
            printf('%.1f us before %s', g.dur_ns / 1e3, o.name),
            ' in ' || o.nvtx_range,
            ', after ' || g.sync_name
        ) AS text
    FROM longest AS l
    JOIN _gaps AS g USING (track, op_id)
    JOIN _gpus AS t USING (track)
    JOIN launches AS o ON o.report_id = t.report_id AND o.op_id = g.op_id
)
SELECT
    c.report_id,
    c.device,
    row_number() OVER (PARTITION BY c.report_id, c.device ORDER BY c.share_pct DESC, c.bound, t.rank) AS rank,
    c.bound,
    c.share_pct,
    t.technique,
    t.difficulty,
    c.confidence,
    w.text AS largest_gap
FROM contributors AS c
JOIN _techniques AS t USING (bound)
LEFT JOIN worded AS w USING (report_id, device, bound)
LEFT JOIN launch_summary AS s USING (report_id, device)
LEFT JOIN rank_skew AS k USING (report_id, device)
WHERE c.bound != 'compute'
    -- Graphs do not help work that already comes from graphs.
    AND (t.technique != 'cuda_graphs' OR s.graphs_save_pct >= threshold('timeline.contributor_pct'))
    AND (t.technique != 'balance_ranks' OR k.waiting_pct >= threshold('timeline.contributor_pct'))
ORDER BY c.report_id, c.device, rank;
