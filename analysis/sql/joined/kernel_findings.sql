-- Techniques from the knowledge base that match each launch's class and features, with an upper bound on the
-- gain of each technique: 100 % minus the largest floor (kernel_floors) of the work that the technique leaves
-- unchanged. The gains of a launch overlap: do not add them.
-- @materialize
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- bound VARCHAR: bound, as in kernel_bottleneck
-- subclass VARCHAR: limiter, as in kernel_bottleneck
-- cause VARCHAR: cause, as in kernel_bottleneck
-- technique VARCHAR: key of the technique in the knowledge base
-- rank BIGINT: order in which to try the techniques, from 1: techniques that remove the cause come first
--   (unless they can save little), then other techniques by decreasing bound, then techniques without a
--   bound; techniques that reduce numerical accuracy come last
-- gain_pct DOUBLE: upper bound on the gain: the most time that the technique can save, % of the launch's
--   time; NULL if no bound can be derived
-- floor VARCHAR: part of the unchanged work that takes the longest and therefore sets the bound, as in
--   kernel_floors; NULL without a bound
-- floor_pct DOUBLE: time that the part named in floor takes at its roof, % of the launch's time
-- nvidia_pct DOUBLE: NVIDIA's estimate of the time saved, from its rule for this technique, %; NULL without
--   an estimate
-- nvidia_rule VARCHAR: name of the NVIDIA rule that provides nvidia_pct
-- time_share_pct DOUBLE: the launch's share of the report's profiled time, %
-- priority DOUBLE: upper bound on the gain, % of the report's profiled time: time_share_pct x gain_pct / 100;
--   NULL without a bound
-- secondary BOOLEAN: whether there is little to gain, because the unchanged part takes at least 80 % of the
--   time; NULL without a bound
-- precision BOOLEAN: whether the technique reduces numerical accuracy
-- saved_bytes DOUBLE: DRAM traffic that fusion would save, bytes; NULL for other techniques
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
-- confidence VARCHAR: confidence of the class
-- evidence JSON: JSON list of the metrics, values and thresholds that determined the class, as in
--   kernel_bottleneck
CREATE VIEW kernel_findings AS
WITH estimates AS (
    SELECT report_id, launch_id, rule, max(speedup_pct) AS speedup_pct
    FROM kernel_rules
    WHERE speedup_pct IS NOT NULL AND type = 'OPT' AND coalesce(title != 'Not Selected Stalls', true)
    GROUP BY report_id, launch_id, rule
),
-- Launches whose tensor pipe is almost always busy with useful FLOPs: the same work in another form takes as
-- long. The distance to the nominal peak depends on clocks.
saturated_launches AS (
    SELECT i.report_id, i.launch_id
    FROM _bottleneck_inputs AS i
    LEFT JOIN gemm_quantisation AS q USING (report_id, launch_id)
    WHERE of_tensor_peak(i.tensor_pct, i.mma_sync_pct) >= threshold('finding.saturated_pct')
        AND coalesce(q.padding_pct, 0) < 100 - threshold('finding.saturated_pct')
),
launches AS (
    SELECT
        b.*,
        s.kernel_name,
        s.duration_ns,
        100 * s.duration_ns / nullif(sum(s.duration_ns) OVER report, 0) AS time_share_pct,
        f.features,
        f.fusion_bytes,
        u.launch_id IS NOT NULL AS saturated
    FROM kernel_bottleneck AS b
    JOIN kernel_sol AS s USING (report_id, launch_id)
    JOIN kernel_features AS f USING (report_id, launch_id)
    -- What prepares inputs or checks results need not be fast; seeding generators can be avoided.
    ANTI JOIN (FROM _setup_launches WHERE setup != 'states') USING (report_id, launch_id)
    LEFT JOIN saturated_launches AS u USING (report_id, launch_id)
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
        t.keeps,
        t.saves,
        t.precision,
        t.removes = l.cause AS removes_cause,
        e.speedup_pct AS nvidia_pct,
        e.rule AS nvidia_rule
    FROM launches AS l
    JOIN _techniques AS t
        ON t.bound = l.bound
        AND (t.subclass = '*' OR t.subclass = l.subclass)
        AND (t.cause = '*' OR t.cause = coalesce(l.cause, '-'))
        AND list_has_all(l.features, t.features)
        AND NOT (list_contains(t.keeps, 'flops') AND l.saturated)
    LEFT JOIN estimates AS e
        ON e.report_id = l.report_id AND e.launch_id = l.launch_id AND e.rule = t.rule
),
kept AS (
    SELECT m.report_id, m.launch_id, m.technique, f.floor, f.pct
    FROM matched AS m
    JOIN kernel_floors AS f
        ON f.report_id = m.report_id AND f.launch_id = m.launch_id AND list_contains(m.keeps, f.floor)
    -- A floor of almost no time does not limit the gain, unless the launch itself disappears, or the
    -- technique keeps all of its work and the launch is so long that the cost of a launch is negligible.
    WHERE f.floor IN ('nothing', 'chain')
        OR f.pct >= threshold('finding.least_floor_pct')
        OR f.floor = 'work'
            AND m.duration_ns * threshold('finding.least_floor_pct') / 100 >= threshold('finding.launch_ns')
    QUALIFY row_number() OVER (
        PARTITION BY m.report_id, m.launch_id, m.technique ORDER BY f.pct DESC, f.floor
    ) = 1
),
bounded AS (
    SELECT
        m.*,
        k.floor,
        k.pct AS floor_pct,
        100 - k.pct AS gain_pct,
        coalesce(k.pct >= threshold('finding.secondary_sol_pct'), false) AS secondary
    FROM matched AS m
    LEFT JOIN kept AS k USING (report_id, launch_id, technique)
)
SELECT
    report_id, launch_id, kernel_name,
    bound, subclass, cause,
    technique,
    row_number() OVER (
        PARTITION BY report_id, launch_id
        ORDER BY
            precision,
            coalesce(removes_cause AND NOT secondary, false) DESC,
            gain_pct DESC NULLS LAST,
            place, technique
    ) AS rank,
    gain_pct,
    floor,
    floor_pct,
    nvidia_pct,
    nvidia_rule,
    time_share_pct,
    time_share_pct * gain_pct / 100 AS priority,
    CASE WHEN floor_pct IS NOT NULL THEN secondary END AS secondary,
    precision,
    CASE saves WHEN 'fusion_bytes' THEN fusion_bytes END AS saved_bytes,
    difficulty,
    confidence,
    evidence
FROM bounded
ORDER BY report_id, launch_id, rank;
