-- Recommended techniques, each listed once. Techniques for timelines (from timeline_findings and operator
-- findings) come first, followed by techniques for kernels that no operator finding covers. Techniques are
-- ordered by their upper bound on the gain, or, without a bound, by the share of time that they address. For
-- kernels, a difficult technique is ranked by half of its bound, and techniques that reduce numerical
-- accuracy or can save little come last. Gains overlap: do not add them.
--
-- rank BIGINT: priority, from 1
-- subject VARCHAR: timeline or kernel
-- technique VARCHAR: key of the technique in the knowledge base
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
-- bound VARCHAR: category of timeline_bottleneck, or operator, that the technique addresses (the largest if
--   there are several); NULL for kernels
-- share_of VARCHAR: reference time (100 %) for share_pct and gain_pct, as in findings
-- share_pct DOUBLE: time that the technique addresses, % of the reference time (share_of)
-- gain_pct DOUBLE: upper bound on the time that the technique can save, % of the reference time (share_of);
--   for a kernel without a bound, its whole share is counted; NULL if no bound is known
-- floors VARCHAR[]: parts of the work or time that the bounds assume to be unchanged, as in findings
-- nvidia_pct DOUBLE: NVIDIA's estimate of the time that the technique saves in the longest kernel, % of that
--   kernel's time; NULL without an estimate
-- saved_bytes DOUBLE: DRAM traffic that fusion would save, bytes; NULL for other techniques
-- secondary BOOLEAN: whether there is little to gain in every launch; NULL for timelines
-- precision BOOLEAN: whether the technique reduces numerical accuracy
-- instances BIGINT: number of GPU timelines or launches that the technique addresses
-- kernels STRUCT("name" VARCHAR, bound VARCHAR, subclass VARCHAR, cause VARCHAR)[]: kernels that the
--   technique addresses, with name, bound, subclass and cause; NULL for timelines
CREATE VIEW recommendations AS
WITH of_launches AS (
    SELECT f.*, l.duration_ns, h.share, h.share_of, h.most
    FROM kernel_findings AS f
    JOIN ncu_launches AS l USING (report_id, launch_id)
    JOIN _launch_shares AS h USING (report_id, launch_id)
    ANTI JOIN _operator_kernels AS o ON o.report_id = f.report_id AND o.key = kernel_key(l.kernel_demangled)
    WHERE coalesce(f.gain_pct > 0, true)
),
found AS (
    SELECT
        'timeline' AS subject,
        f.technique,
        -- Advice for another rank names the problem of that rank.
        arg_max(f.bound, (f.share_pct, f.bound)) AS bound,
        any_value(f.difficulty) AS difficulty,
        coalesce(
            any_value(f.part), CASE WHEN bool_and(w.kind = 'steady') THEN 'step' ELSE 'timeline' END
        ) AS share_of,
        max(f.share_pct) AS share_pct,
        max(f.weight_pct) AS weight_pct,
        CASE WHEN count(*) = count(f.gain_pct) THEN max(f.gain_pct) END AS gain_pct,
        list(DISTINCT f.floor ORDER BY f.floor) FILTER (f.floor IS NOT NULL) AS floors,
        min(f.rank) AS place,
        coalesce(bool_or(f.precision), false) AS precision,
        count(DISTINCT (f.report_id, f.device)) AS instances
    FROM (FROM _plain_findings UNION ALL BY NAME FROM _own_advice) AS f
    JOIN analysis_windows AS w USING (report_id, device)
    GROUP BY f.technique
    UNION ALL BY NAME
    SELECT
        'kernel' AS subject,
        technique,
        any_value(difficulty) AS difficulty,
        any_value(share_of) AS share_of,
        100 * sum(share ORDER BY report_id, launch_id) AS share_pct,
        CASE
            WHEN count(gain_pct) > 0
                THEN sum(share * coalesce(gain_pct, 100) ORDER BY report_id, launch_id)
        END AS kernel_pct,
        any_value(100 * most) AS most_pct,
        coalesce(bool_or(goes_with_launch(floor)), false) AS goes,
        list(DISTINCT floor ORDER BY floor) FILTER (floor IS NOT NULL) AS kernel_floors,
        limited_by_host(kernel_pct, most_pct, goes) AS limited,
        if(limited, most_pct, kernel_pct) AS gain_pct,
        if(limited, ['host'], kernel_floors) AS floors,
        of_longest(nvidia_pct, duration_ns, report_id, launch_id) AS nvidia_pct,
        sum(saved_bytes ORDER BY report_id, launch_id) AS saved_bytes,
        coalesce(bool_and(secondary), false) AS secondary,
        any_value(precision) AS precision,
        count(*) AS instances,
        list(
            DISTINCT {name: kernel_name, bound: bound, subclass: subclass, cause: cause}
            ORDER BY {name: kernel_name, bound: bound, subclass: subclass, cause: cause}
        ) AS kernels
    FROM of_launches
    GROUP BY technique
    HAVING 100 * sum(share * coalesce(gain_pct, 100) / 100 ORDER BY report_id, launch_id)
        >= threshold('finding.min_gain_pct')
),
weighed AS (
    SELECT
        *,
        CASE
            WHEN bound = 'launch_overhead'
                THEN beside_host(gain_pct, share_pct, max(if(bound = 'host', share_pct, NULL)) OVER ())
            WHEN gain_pct IS NULL AND subject = 'timeline'
                THEN least(share_pct, weight_pct, min(gain_pct) OVER (PARTITION BY subject, bound))
            ELSE coalesce(kernel_pct, gain_pct, share_pct)
        END AS own_weight
    FROM found
),
placed AS (
    SELECT
        *,
        CASE
            WHEN precedes_graphs(bound, (SELECT max(per_step) FROM small_readbacks))
                THEN greatest(own_weight, max(if(bound = 'launch_overhead', own_weight, NULL)) OVER ())
            ELSE own_weight
        END AS weight
    FROM weighed
)
SELECT
    row_number() OVER (
        ORDER BY
            subject DESC,
            secondary,
            precision AND subject = 'kernel',
            weight * CASE
                WHEN subject = 'kernel' AND difficulty = 'high' THEN threshold('finding.hard_weight')
                WHEN precision THEN threshold('finding.inexact_weight')
                ELSE 1
            END DESC,
            gain_pct IS NULL,
            bound IS DISTINCT FROM 'readback',
            place, technique, bound
    ) AS rank,
    subject,
    technique,
    difficulty,
    bound,
    share_of,
    share_pct,
    gain_pct,
    floors,
    nvidia_pct,
    saved_bytes,
    secondary,
    precision,
    instances,
    kernels
FROM placed
ORDER BY rank;
