-- What can be done about each GPU's time, the largest share first: the techniques of the knowledge
-- base for every contributor of 10 % or more.  A share bounds what removing it could save; kernels
-- have kernel_findings.
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
WITH parts AS (
    SELECT report_id, device, confidence, unnest(shares) AS item
    FROM timeline_bottleneck
),
contributors AS (
    SELECT report_id, device, confidence, item.category AS bound, item.share_pct AS share_pct
    FROM parts
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
),
-- What techniques ask for beside the category.
shown AS (
    SELECT
        b.report_id,
        b.device,
        list_filter([
            -- What comes from graphs already is not helped by graphs.
            CASE WHEN s.graphs_save_pct >= threshold('timeline.contributor_pct') THEN 'graphs_save' END,
            CASE WHEN k.waiting_pct >= threshold('timeline.contributor_pct') THEN 'ranks_wait' END
        ], lambda feature: feature IS NOT NULL) AS features
    FROM timeline_bottleneck AS b
    LEFT JOIN launch_summary AS s USING (report_id, device)
    LEFT JOIN rank_skew AS k USING (report_id, device)
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
JOIN shown AS f USING (report_id, device)
JOIN _techniques AS t ON t.bound = c.bound AND list_has_all(f.features, t.features)
LEFT JOIN worded AS w ON w.report_id = c.report_id AND w.device = c.device AND w.bound = c.bound
WHERE c.bound != 'compute'
ORDER BY c.report_id, c.device, rank;
