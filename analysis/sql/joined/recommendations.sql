-- What to try: the techniques of timeline_findings first, then those of kernel_findings, each once,
-- largest possible gain first and kernels near their limit last.  Gains overlap: never add them.
-- Shares are of all reports in the query.
--
-- rank: priority, from 1
-- subject: timeline or kernel
-- technique: key in the knowledge base
-- difficulty: low, medium or high
-- bound: category of timeline_bottleneck that it addresses; NULL for kernels
-- share_pct: share of the GPU's window, or of all profiled time, that it addresses, %
-- gain_pct: share of that window or of all profiled time that it could save at most, %
-- gain_sources: basis of the bound, as in kernel_findings; NULL for timelines
-- saved_bytes: bytes that fusion would save; NULL for other techniques
-- secondary: whether all its launches run near their limit; NULL for timelines
-- instances: number of GPU timelines, or launches, that it addresses
-- kernels: kernels that it addresses: name, bound, subclass and cause of each; NULL for timelines
CREATE VIEW recommendations AS
WITH profiled AS (
    SELECT nullif(sum(duration_ns ORDER BY report_id, launch_id), 0) AS time_ns
    FROM ncu_launches
),
of_launches AS (
    SELECT f.*, l.duration_ns / p.time_ns AS share
    FROM kernel_findings AS f
    JOIN ncu_launches AS l USING (report_id, launch_id)
    CROSS JOIN profiled AS p
    WHERE f.gain_pct > 0
),
found AS (
    SELECT
        'timeline' AS subject,
        technique,
        bound,
        any_value(difficulty) AS difficulty,
        max(share_pct) AS share_pct,
        max(share_pct) AS gain_pct,
        min(rank) AS place,
        count(*) AS instances
    FROM timeline_findings
    GROUP BY technique, bound
    UNION ALL BY NAME
    SELECT
        'kernel' AS subject,
        technique,
        any_value(difficulty) AS difficulty,
        100 * sum(share ORDER BY report_id, launch_id) AS share_pct,
        sum(share * gain_pct ORDER BY report_id, launch_id) AS gain_pct,
        list(DISTINCT gain_source ORDER BY gain_source) AS gain_sources,
        sum(saved_bytes ORDER BY report_id, launch_id) AS saved_bytes,
        bool_and(secondary) AS secondary,
        count(*) AS instances,
        list(
            DISTINCT {name: kernel_name, bound: bound, subclass: subclass, cause: cause}
            ORDER BY {name: kernel_name, bound: bound, subclass: subclass, cause: cause}
        ) AS kernels
    FROM of_launches
    GROUP BY technique
    HAVING sum(share * gain_pct ORDER BY report_id, launch_id) >= threshold('finding.min_gain_pct')
)
SELECT
    row_number() OVER (ORDER BY subject DESC, secondary, gain_pct DESC, place, technique, bound) AS rank,
    subject,
    technique,
    difficulty,
    bound,
    share_pct,
    gain_pct,
    gain_sources,
    saved_bytes,
    secondary,
    instances,
    kernels
FROM found
ORDER BY rank;
