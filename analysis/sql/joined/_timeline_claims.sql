-- Findings about each GPU's time, and findings in separate files, in the columns of findings.
CREATE VIEW _timeline_claims AS
WITH contributors AS (
    SELECT
        report_id,
        device,
        bound,
        any_value(share_pct ORDER BY rank) AS share_pct,
        any_value(confidence ORDER BY rank) AS confidence,
        any_value(slow_pct ORDER BY rank) AS slow_pct,
        any_value(idle_line ORDER BY rank) AS idle_line,
        any_value(idle_in ORDER BY rank) AS idle_in,
        any_value(largest_gap ORDER BY rank) AS largest_gap,
        -- If most of the time in collectives is waiting, the cure for the waiting comes first.
        arg_min(
            {technique: technique, for_rank: for_rank, floor: floor, gain_pct: gain_pct},
            (coalesce(floor NOT IN ('waiting', 'start'), true), -coalesce(gain_pct, -1), rank)
        ) AS first
    FROM _plain_findings
    GROUP BY report_id, device, bound
),
claims AS (
    SELECT
        c.report_id,
        c.device,
        CASE
            WHEN w.start_pct >= 50 THEN 'start_skew'
            WHEN w.waiting_pct IS NOT NULL THEN 'ranks_wait'
            ELSE c.bound
        END AS claim,
        row_number() OVER (ORDER BY c.share_pct DESC, c.report_id, c.device, c.bound) AS place,
        c.bound,
        c.share_pct, w.waiting_pct, w.start_pct,
        r.cause AS last_cause,
        r.excess_ns AS last_excess_ns,
        c.first.for_rank AS for_rank,
        b.copies AS readbacks,
        b.per_step AS readbacks_per_step,
        b.max_bytes AS readback_bytes,
        c.slow_pct,
        c.idle_line,
        c.idle_in,
        CASE WHEN c.bound = 'building' THEN m.words END AS causes,
        CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_rank END AS last_rank,
        CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_pct END AS last_pct,
        c.largest_gap,
        c.first.gain_pct AS bound_pct,
        c.first.floor AS floor,
        c.confidence,
        c.first.technique AS technique
    FROM contributors AS c
    LEFT JOIN _rank_waits AS w ON w.report_id = c.report_id AND w.device = c.device AND w.bound = c.bound
    LEFT JOIN _rank_causes AS r
        ON r.report_id = c.report_id AND r.device = c.device AND r.rank = w.own_rank
    LEFT JOIN _recompilations AS m ON m.report_id = c.report_id AND m.device = c.device
    LEFT JOIN small_readbacks AS b
        ON b.report_id = c.report_id AND b.device = c.device AND c.bound = 'readback'
    UNION ALL BY NAME
    FROM _own_claims
)
SELECT
    'timeline' AS subject,
    c.* EXCLUDE (report_id)
        REPLACE (
            coalesce(c.part, v.kind) AS part,
            c.last_excess_ns / if(v.kind = 'steady', v.steps, 1) AS last_excess_ns
        ),
    l.label,
    coalesce(c.part, if(v.kind = 'steady', 'step', 'timeline')) AS share_of,
    [c.report_id] AS reports
FROM claims AS c
JOIN _labels AS l USING (report_id)
JOIN analysis_windows AS v ON v.report_id = c.report_id AND v.device IS NOT DISTINCT FROM c.device;
