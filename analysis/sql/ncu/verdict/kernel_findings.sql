-- What can be done about each launch: the techniques of the knowledge base that its class and its
-- features ask for, each with a bound on the gain.  Gains of one launch overlap and are never added up.
--
-- report_id: report
-- launch_id: launch
-- kernel_name: function name
-- bound: class, as in kernel_bottleneck
-- subclass: where
-- cause: why
-- technique: key in the knowledge base
-- rank: 1 is the technique with the highest bound for this launch
-- gain_pct: share of the launch's time that it could save at most, %
-- gain_source: where the bound comes from: NVIDIA's rule, headroom to the speed of light, a share,
--   or the partial wave
-- time_share_pct: share of the launch in the report's profiled time, %
-- priority: time share x bound: share of all profiled time that it could save at most, %
-- secondary: whether the launch runs at 80 % SOL or more already
-- saved_bytes: bytes that fusion would save, where that is the technique
-- difficulty: low, medium or high
-- confidence: that of the class
-- evidence: JSON, as in kernel_bottleneck
CREATE VIEW kernel_findings AS
WITH estimates AS (
    SELECT report_id, launch_id, rule, max(speedup_pct) AS speedup_pct
    FROM kernel_rules
    WHERE speedup_pct IS NOT NULL AND type = 'OPT' AND coalesce(title != 'Not Selected Stalls', true)
    GROUP BY report_id, launch_id, rule
),
launches AS (
    SELECT
        b.*,
        s.kernel_name,
        s.max_sol_pct,
        headroom(s.max_sol_pct) AS headroom_pct,
        100 * s.duration_ns / nullif(sum(s.duration_ns) OVER report, 0) AS time_share_pct,
        o.tail_pct,
        f.features,
        f.fusion_bytes
    FROM kernel_bottleneck AS b
    JOIN kernel_sol AS s USING (report_id, launch_id)
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    JOIN kernel_features AS f USING (report_id, launch_id)
    WINDOW report AS (
        PARTITION BY b.report_id
        ORDER BY b.launch_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
),
matched AS (
    SELECT DISTINCT
        l.*,
        t.technique,
        t.rank AS place,
        t.difficulty,
        t.gain,
        t.saves,
        e.speedup_pct
    FROM launches AS l
    JOIN _techniques AS t
        ON t.bound = l.bound
        AND (t.subclass = '*' OR t.subclass = l.subclass)
        AND (t.cause = '*' OR t.cause = coalesce(l.cause, '-'))
        AND list_has_all(l.features, t.features)
    LEFT JOIN estimates AS e
        ON e.report_id = l.report_id AND e.launch_id = l.launch_id AND t.gain = concat('rule:', e.rule)
),
bounded AS (
    SELECT
        *,
        CASE
            WHEN starts_with(gain, 'share:') THEN replace(gain, 'share:', '')::DOUBLE
            WHEN gain = 'tail' THEN tail_pct
            WHEN speedup_pct IS NOT NULL THEN least(speedup_pct, 100)
            ELSE headroom_pct
        END AS gain_pct,
        CASE
            WHEN starts_with(gain, 'share:') THEN 'share of the time'
            WHEN gain = 'tail' THEN 'partial wave'
            WHEN speedup_pct IS NOT NULL THEN replace(gain, 'rule:', 'rule ')
            ELSE 'headroom'
        END AS gain_source
    FROM matched
)
SELECT
    report_id,
    launch_id,
    kernel_name,
    bound,
    subclass,
    cause,
    technique,
    row_number() OVER (
        PARTITION BY report_id, launch_id ORDER BY gain_pct DESC NULLS LAST, place, technique
    ) AS rank,
    gain_pct,
    gain_source,
    time_share_pct,
    time_share_pct * gain_pct / 100 AS priority,
    max_sol_pct >= threshold('finding.secondary_sol_pct') AS secondary,
    CASE saves WHEN 'fusion_bytes' THEN fusion_bytes END AS saved_bytes,
    difficulty,
    confidence,
    evidence
FROM bounded
ORDER BY report_id, launch_id, rank;
