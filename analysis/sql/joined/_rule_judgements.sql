-- NVIDIA's rules for each launch, with what decides how perfpipe's verdict compares.
CREATE VIEW _rule_judgements AS
WITH advice AS (
    SELECT
        f.report_id,
        f.launch_id,
        list(
            {
                technique: f.technique, rule: f.nvidia_rule, features: t.features,
                gain_pct: f.gain_pct, floor: f.floor, floor_pct: f.floor_pct
            }
            ORDER BY f.rank
        ) AS advice
    FROM kernel_findings AS f
    JOIN (SELECT DISTINCT technique, features FROM _techniques) AS t USING (technique)
    GROUP BY f.report_id, f.launch_id
),
classed AS (
    SELECT
        b.*,
        [b.bound, concat_ws('.', b.bound, b.subclass), coalesce(b.cause, '-')] AS classes,
        concat(b.bound, ' (' || replace(b.subclass, '_', ' ') || ')') AS limiter,
        a.advice,
        l.duration_ns,
        l.kernel_name,
        if(l.compute_sol_pct >= l.memory_sol_pct, 'compute', 'memory') AS side,
        l.max_sol_pct,
        headroom(l.max_sol_pct) AS headroom_pct,
        i.imbalance_pct,
        i.bytes_per_sector,
        i.threads_per_inst,
        i.stall,
        i.stall_pct,
        w.compression_success_pct,
        map {
            'compute': l.compute_sol_pct,
            'memory': l.memory_sol_pct,
            'l1': coalesce(l.l1_elapsed_sol_pct, l.shared_sol_pct),
            'l2': l.l2_sol_pct
        } AS levels
    FROM kernel_bottleneck AS b
    JOIN kernel_sol AS l USING (report_id, launch_id)
    JOIN _bottleneck_inputs AS i USING (report_id, launch_id)
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    LEFT JOIN advice AS a USING (report_id, launch_id)
),
matched AS (
    SELECT
        r.*,
        s.subjects,
        s.same_work,
        s.unit,
        c.* EXCLUDE (report_id, launch_id, advice, levels),
        coalesce(c.levels[s.unit], p.pct) AS unit_pct,
        list_filter(
            c.advice, lambda x: coalesce(x.rule = r.rule, false) OR list_has_any(x.features, s.subjects)
        )[1] AS advised
    FROM kernel_rules AS r
    JOIN classed AS c USING (report_id, launch_id)
    LEFT JOIN _rule_subjects AS s
        ON s.rule = r.rule
            AND coalesce(s.title = r.title, NOT EXISTS (
                SELECT 1 FROM _rule_subjects AS t WHERE t.rule = r.rule AND t.title = r.title
            ))
    LEFT JOIN kernel_pipes AS p
        ON p.report_id = r.report_id AND p.launch_id = r.launch_id AND p.pipe = s.unit
    WHERE r.type = 'OPT'
)
SELECT
    * EXCLUDE (advised),
    -- Waits have many causes, and techniques for each.
    list_has_any(subjects, classes) OR (rule != 'CPIStall' AND advised IS NOT NULL) AS same,
    CASE WHEN same THEN advised END AS advised
FROM matched;
