-- NVTX ranges as a tree: GPU time launched within each path of ranges, on the ranges' own threads.
-- Operators of PyTorch are ranges of the domain cpu_op.  Numbers in names are replaced by *, so that all
-- steps are one node; the eight outermost levels of each thread.
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
WITH RECURSIVE totals AS MATERIALIZED (
    SELECT report_id, row_number() OVER () AS report, sum(end_ns - start_ns) AS ns
    FROM launches
    GROUP BY report_id
),
names AS MATERIALIZED (
    -- String expressions run once per name, not per range.
    SELECT name, stem, dense_rank() OVER (ORDER BY stem) AS number
    FROM (
        SELECT name, regexp_replace(name, '[0-9]+', '*', 'g') AS stem
        FROM _names
        WHERE kind = 'range' AND name != ''
    )
),
domains AS MATERIALIZED (
    SELECT domain, row_number() OVER () AS number
    FROM (SELECT DISTINCT domain FROM nsys_nvtx_ranges WHERE domain != '')
),
named AS MATERIALIZED (
    -- Numbers instead of names, since each range is joined to the one around it; joined on one text at a
    -- time, which costs least.  0 stands for what has no name.
    SELECT
        4294967296 * t.report + r.range_id AS range,
        4294967296 * t.report + r.enclosing AS around,
        t.report,
        r.level,
        coalesce(n.number, 0) + 4294967296 * coalesce(d.number, 0) AS code,
        r.gpu_time_ns,
        r.dur_ns
    FROM nsys_nvtx_ranges AS r
    JOIN totals AS t ON t.report_id = r.report_id
    LEFT JOIN domains AS d ON d.domain = r.domain
    LEFT JOIN names AS n ON n.name = r.name
    WHERE r.gpu_calls > 0 AND r.level < 8 AND r.gpu_time_ns IS NOT NULL
),
placed AS (
    -- A node is a path of names, as a number.
    SELECT range, report, code, gpu_time_ns, dur_ns, 0 AS depth, hash(code) AS node, NULL::UBIGINT AS above
    FROM named
    WHERE level = 0
    UNION ALL
    SELECT n.range, n.report, n.code, n.gpu_time_ns, n.dur_ns, p.depth + 1, hash(p.node, n.code), p.node
    FROM placed AS p
    JOIN named AS n ON n.around = p.range
),
sums AS MATERIALIZED (
    SELECT
        report,
        depth,
        node,
        above,
        code,
        sum(gpu_time_ns)::BIGINT AS ns,
        sum(dur_ns)::BIGINT AS host_ns,
        count(*) AS instances
    FROM placed
    GROUP BY report, depth, node, above, code
),
titled AS (
    SELECT s.* EXCLUDE (code), nsys_range_name(d.domain, n.stem) AS title
    FROM sums AS s
    LEFT JOIN domains AS d ON d.number = s.code >> 32
    LEFT JOIN (SELECT DISTINCT number, stem FROM names) AS n ON n.number = s.code % 4294967296
),
ranked AS MATERIALIZED (
    SELECT
        *,
        printf('%05d', row_number() OVER (PARTITION BY report, above ORDER BY ns DESC, title)) AS number
    FROM titled
),
tree AS (
    SELECT report, node, depth, title, ns, host_ns, instances, title AS path, number AS tree_order
    FROM ranked
    WHERE above IS NULL
    UNION ALL
    SELECT
        r.report, r.node, r.depth, r.title, r.ns, r.host_ns, r.instances,
        concat(t.path, ' > ', r.title), concat(t.tree_order, '.', r.number)
    FROM tree AS t
    JOIN ranked AS r ON r.report = t.report AND r.above = t.node
),
inside AS (
    SELECT report, above AS node, sum(ns) AS ns
    FROM sums
    WHERE above IS NOT NULL
    GROUP BY report, above
)
SELECT
    t.report_id,
    r.path,
    r.title AS range,
    r.depth,
    r.instances,
    r.ns AS gpu_time_ns,
    greatest(0, r.ns - coalesce(i.ns, 0))::BIGINT AS own_gpu_time_ns,
    100.0 * r.ns / nullif(t.ns, 0) AS share_pct,
    r.ns / r.instances AS mean_ns,
    r.host_ns AS host_time_ns,
    r.tree_order
FROM tree AS r
JOIN totals AS t USING (report)
LEFT JOIN inside AS i ON i.report = r.report AND i.node = r.node
ORDER BY t.report_id, r.tree_order;
