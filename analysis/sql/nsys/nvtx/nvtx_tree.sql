-- NVTX ranges as a tree: GPU time launched within each path of ranges, on the ranges' own threads.
-- Numbers in names are replaced by *, so that all steps are one node; the three outermost levels of
-- each thread.
--
-- report_id: report
-- path: the range and those around it, outer ones first
-- range: domain:text
-- depth: number of ranges around it
-- instances: number of ranges that launched something
-- gpu_time_ns: total time: sum of the durations of what they launched, ns
-- own_gpu_time_ns: self time: the part that no range of the next level launched, ns; too small where
--   start/end ranges of that level overlap, since what both launched counts twice, but never below 0
-- share_pct: share of the durations of all operations of the report, %
-- mean_ns: GPU time per instance, ns
-- host_time_ns: sum of the durations of those ranges on the host, ns
-- tree_order: position in the tree from top to bottom, longest first
CREATE VIEW nvtx_tree AS
WITH launching AS (
    SELECT report_id, range_id, enclosing, level, domain, name, gpu_time_ns, dur_ns
    FROM nsys_nvtx_ranges
    WHERE gpu_calls > 0 AND level <= 2 AND gpu_time_ns IS NOT NULL
),
titles AS (
    -- String expressions run once per name, not per range.
    SELECT domain, name, nsys_range_name(domain, regexp_replace(name, '[0-9]+', '*', 'g')) AS title
    FROM launching
    GROUP BY domain, name
),
named AS MATERIALIZED (
    SELECT l.report_id, l.range_id, l.enclosing, l.level, l.gpu_time_ns, l.dur_ns, t.title
    FROM launching AS l
    JOIN titles AS t ON t.domain IS NOT DISTINCT FROM l.domain AND t.name IS NOT DISTINCT FROM l.name
),
middle AS MATERIALIZED (
    SELECT b.report_id, b.range_id, b.gpu_time_ns, b.dur_ns, b.title, a.title AS above
    FROM named AS b
    JOIN named AS a ON a.report_id = b.report_id AND a.range_id = b.enclosing
    WHERE a.level = 0 AND b.level = 1
),
sums AS (
    SELECT
        report_id,
        0 AS depth,
        title,
        NULL AS above,
        NULL AS top,
        sum(gpu_time_ns) AS ns,
        sum(dur_ns) AS host_ns,
        count(*) AS instances
    FROM named
    WHERE level = 0
    GROUP BY report_id, title
    UNION ALL
    SELECT report_id, 1, title, above, NULL, sum(gpu_time_ns), sum(dur_ns), count(*)
    FROM middle
    GROUP BY report_id, title, above
    UNION ALL
    SELECT c.report_id, 2, c.title, b.title, b.above, sum(c.gpu_time_ns), sum(c.dur_ns), count(*)
    FROM named AS c
    JOIN middle AS b ON b.report_id = c.report_id AND b.range_id = c.enclosing
    WHERE c.level = 2
    GROUP BY c.report_id, c.title, b.title, b.above
),
pathed AS (
    SELECT *, concat_ws(' > ', top, above) AS parent, concat_ws(' > ', top, above, title) AS path
    FROM sums
),
inside AS (
    SELECT report_id, parent AS path, sum(ns) AS ns
    FROM pathed
    WHERE depth > 0
    GROUP BY report_id, parent
),
totals AS (
    SELECT report_id, sum(end_ns - start_ns) AS ns
    FROM launches
    GROUP BY report_id
),
ranked AS (
    SELECT *, row_number() OVER (PARTITION BY report_id, parent ORDER BY ns DESC, title) AS number
    FROM pathed
)
SELECT
    r.report_id,
    r.path,
    r.title AS range,
    r.depth,
    r.instances,
    r.ns::BIGINT AS gpu_time_ns,
    greatest(0, r.ns - coalesce(i.ns, 0))::BIGINT AS own_gpu_time_ns,
    100.0 * r.ns / nullif(t.ns, 0) AS share_pct,
    r.ns / r.instances AS mean_ns,
    r.host_ns::BIGINT AS host_time_ns,
    concat_ws('.', printf('%05d', g.number), printf('%05d', p.number), printf('%05d', r.number)) AS tree_order
FROM ranked AS r
JOIN totals AS t USING (report_id)
LEFT JOIN inside AS i ON i.report_id = r.report_id AND i.path = r.path
LEFT JOIN ranked AS p ON p.report_id = r.report_id AND p.path = r.parent AND p.depth = r.depth - 1
LEFT JOIN ranked AS g ON g.report_id = p.report_id AND g.path = p.parent AND g.depth = p.depth - 1
ORDER BY r.report_id, tree_order;
