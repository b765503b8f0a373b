-- Findings about each GPU's time, on operators of many kernels, and on start-up where it is long, of several
-- GPUs the longest; in the columns of findings.
CREATE VIEW _timeline_claims AS
WITH contributors AS (
    SELECT
        report_id,
        device,
        bound,
        any_value(share_pct ORDER BY rank) AS share_pct,
        any_value(confidence ORDER BY rank) AS confidence,
        any_value(slow_pct ORDER BY rank) AS slow_pct,
        any_value(idle_in ORDER BY rank) AS idle_in,
        any_value(largest_gap ORDER BY rank) AS largest_gap,
        -- Of time in collectives that is mostly waiting, what cures the waiting comes first.
        arg_min(
            {technique: technique, for_rank: for_rank, floor: floor, gain_pct: gain_pct},
            (coalesce(floor NOT IN ('waiting', 'start'), true), -coalesce(gain_pct, -1), rank)
        ) AS first
    FROM timeline_findings
    GROUP BY report_id, device, bound
)
SELECT
    'timeline' AS subject,
    CASE
        WHEN w.start_pct >= 50 THEN 'start_skew'
        WHEN w.waiting_pct IS NOT NULL THEN 'ranks_wait'
        ELSE c.bound
    END AS claim,
    row_number() OVER (ORDER BY c.share_pct DESC, c.report_id, c.device, c.bound) AS place,
    c.bound,
    l.label,
    c.device,
    v.kind AS part,
    CASE v.kind WHEN 'steady' THEN 'step' ELSE 'timeline' END AS share_of,
    c.share_pct, w.waiting_pct, w.start_pct,
    r.cause AS last_cause,
    r.excess_ns / CASE WHEN v.kind = 'steady' THEN v.steps ELSE 1 END AS last_excess_ns,
    c.first.for_rank AS for_rank,
    b.copies AS readbacks,
    b.per_step AS readbacks_per_step,
    b.max_bytes AS readback_bytes,
    c.slow_pct,
    c.idle_in,
    CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_rank END AS last_rank,
    CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_pct END AS last_pct,
    c.largest_gap,
    c.first.gain_pct AS bound_pct,
    c.first.floor AS floor,
    c.confidence,
    c.first.technique AS technique,
    [c.report_id] AS reports
FROM contributors AS c
JOIN _labels AS l USING (report_id)
JOIN analysis_windows AS v ON v.report_id = c.report_id AND v.device = c.device
LEFT JOIN _rank_waits AS w ON w.report_id = c.report_id AND w.device = c.device AND w.bound = c.bound
LEFT JOIN _rank_causes AS r ON r.report_id = c.report_id AND r.device = c.device AND r.rank = w.own_rank
LEFT JOIN small_readbacks AS b
    ON b.report_id = c.report_id AND b.device = c.device AND c.bound = 'readback'
UNION ALL BY NAME
-- Ranks do the same work: of several GPUs the one that spends most on it.
SELECT
    'timeline' AS subject,
    'operator' AS claim,
    row_number() OVER (ORDER BY o.share_pct DESC, o.operator) AS place,
    'operator' AS bound,
    o.operator AS subclass,
    l.label,
    o.device,
    v.kind AS part,
    CASE v.kind WHEN 'steady' THEN 'step' ELSE 'timeline' END AS share_of,
    o.share_pct,
    o.step_ns AS time_ns,
    o.step_launches AS launches,
    o.longest AS causes,
    'high' AS confidence,
    o.technique,
    [o.report_id] AS reports
FROM operator_findings AS o
JOIN _labels AS l USING (report_id)
JOIN analysis_windows AS v USING (report_id, device)
QUALIFY row_number() OVER (PARTITION BY o.operator ORDER BY o.share_pct DESC, o.report_id, o.device) = 1
UNION ALL BY NAME
SELECT
    'timeline' AS subject,
    'single_precision' AS claim,
    row_number() OVER (ORDER BY p.share_pct DESC) AS place,
    'single_precision' AS bound,
    l.label,
    p.device,
    v.kind AS part,
    CASE v.kind WHEN 'steady' THEN 'step' ELSE 'timeline' END AS share_of,
    p.share_pct,
    p.step_ns AS time_ns,
    p.step_launches AS launches,
    p.longest AS causes,
    p.gain_pct AS bound_pct,
    p.floor,
    'medium' AS confidence,
    p.technique,
    [p.report_id] AS reports
FROM precision_findings AS p
JOIN _labels AS l USING (report_id)
JOIN analysis_windows AS v USING (report_id, device)
QUALIFY row_number() OVER (ORDER BY p.share_pct DESC, p.report_id, p.device) = 1
UNION ALL BY NAME
-- Behind the contributors of all GPUs: it does not recur.
SELECT
    'timeline' AS subject,
    'startup' AS claim,
    9223372036854775807 AS place,
    'startup' AS bound,
    s.cause AS subclass,
    l.label,
    s.device,
    'capture' AS part,
    'capture' AS share_of,
    s.share_pct,
    s.startup_ns AS time_ns,
    s.causes,
    'high' AS confidence,
    s.technique,
    [s.report_id] AS reports
FROM startup_findings AS s
JOIN _labels AS l USING (report_id)
QUALIFY row_number() OVER (ORDER BY s.startup_ns DESC, s.report_id, s.device) = 1;
