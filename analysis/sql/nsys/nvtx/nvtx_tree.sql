-- NVTX ranges as a tree, with the GPU time of the work launched within each path of nested ranges on the
-- ranges' threads. PyTorch operators are ranges in the domain cpu_op. Numbers in names are replaced by *,
-- so that all steps form one node. The tree contains the eight outermost levels on each thread.
--
-- report_id VARCHAR: report
-- path VARCHAR: range and its enclosing ranges, outermost first
-- range VARCHAR: name of the range, as domain:text
-- depth INTEGER: number of enclosing ranges
-- instances BIGINT: number of ranges that launched work
-- gpu_time_ns BIGINT: total time: sum of the launched operations' durations, ns
-- own_gpu_time_ns BIGINT: self time: GPU time of operations that were not launched within a child range, ns,
--   at least 0. The self time is underestimated if start/end ranges on the next level overlap, because work
--   launched within two of them is subtracted twice
-- share_pct DOUBLE: percentage of the total duration of all the report's operations
-- mean_ns DOUBLE: mean GPU time per range, ns
-- host_time_ns BIGINT: sum of the ranges' durations on the host, ns
-- tree_order VARCHAR: sort key that lists the tree from top to bottom, longest range first
CREATE VIEW nvtx_tree AS
WITH RECURSIVE totals AS (
    SELECT report_id, sum(end_ns - start_ns) AS ns
    FROM launches
    GROUP BY report_id
),
titled AS (
    SELECT r.*, nsys_range_name(d.stem, n.stem) AS title
    FROM _range_nodes AS r
    LEFT JOIN _range_stems AS d ON d.kind = 'domain' AND d.number = r.domain
    LEFT JOIN (SELECT DISTINCT number, stem FROM _range_stems WHERE kind = 'name') AS n ON n.number = r.name
),
ranked AS MATERIALIZED (
    SELECT
        *,
        printf('%05d', row_number() OVER (PARTITION BY report_id, above ORDER BY ns DESC, title)) AS number
    FROM titled
),
tree AS (
    SELECT report_id, node, depth, title, ns, host_ns, instances, title AS path, number AS tree_order
    FROM ranked
    WHERE above IS NULL
    UNION ALL
    SELECT
        r.report_id, r.node, r.depth, r.title, r.ns, r.host_ns, r.instances,
        concat(t.path, ' > ', r.title), concat(t.tree_order, '.', r.number)
    FROM tree AS t
    JOIN ranked AS r ON r.above = t.node
),
inside AS (
    SELECT above AS node, sum(ns) AS ns
    FROM _range_nodes
    WHERE above IS NOT NULL
    GROUP BY above
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
JOIN totals AS t USING (report_id)
LEFT JOIN inside AS i ON i.node = r.node
ORDER BY t.report_id, r.tree_order;
