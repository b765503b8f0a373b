-- NVTX ranges as a tree, with the GPU time of the work launched within each path of nested ranges. The work
-- of a thread without an open range, such as an autograd thread, belongs to the range that is open on the
-- only other thread with open ranges, which waits for it; the ranges of such a thread are children of that
-- range. `budget --nvtx` uses the same definition. PyTorch operators are ranges in the domain cpu_op.
-- Counters in names are replaced by *, so that all steps form one node. The tree contains the eight outermost
-- levels. Work outside all ranges has a row of its own that states why, so that the outermost rows add up to
-- the time of all operations.
--
-- report_id VARCHAR: report
-- path VARCHAR: range and its enclosing ranges, outermost first
-- range VARCHAR: name of the range, as domain:text; (no open range), (several threads have open ranges)
--   or (no launching call recorded) for work outside all ranges
-- depth INTEGER: number of enclosing ranges
-- instances BIGINT: number of ranges that launched work; NULL for work outside all ranges
-- gpu_time_ns BIGINT: total time: sum of the launched operations' durations, ns
-- own_gpu_time_ns BIGINT: self time: GPU time of operations that were not launched within a child range, ns,
--   at least 0. The self time is underestimated if start/end ranges on the next level overlap, because work
--   launched within two of them is subtracted twice
-- share_pct DOUBLE: percentage of the total duration of all the report's operations
-- mean_ns DOUBLE: mean GPU time per range, ns; NULL for work outside all ranges
-- backward_time_ns BIGINT: GPU time of the backward pass of the PyTorch operators in the range, found by
--   sequence number, ns; this time is also part of gpu_time_ns of the range in which the backward pass ran.
--   NULL if no operator in the range has a known backward pass
-- host_time_ns BIGINT: sum of the ranges' durations on the host, ns; NULL for work outside all ranges
-- tree_order VARCHAR: sort key that lists the tree from top to bottom, longest range first
CREATE VIEW nvtx_tree AS
WITH RECURSIVE totals AS (
    SELECT
        report_id,
        sum(end_ns - start_ns)::BIGINT AS ns,
        (sum(end_ns - start_ns) FILTER (range_id IS NULL))::BIGINT AS outside_ns,
        (sum(end_ns - start_ns) FILTER (range_id IS NULL AND call_id IS NULL))::BIGINT AS uncalled_ns,
        (sum(end_ns - start_ns) FILTER (no_range_reason = 'several threads'))::BIGINT AS several_ns
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
    SELECT
        report_id, node, depth, title, ns, host_ns, backward_ns, instances,
        title AS path, number AS tree_order
    FROM ranked
    WHERE above IS NULL
    UNION ALL
    SELECT
        r.report_id, r.node, r.depth, r.title, r.ns, r.host_ns, r.backward_ns, r.instances,
        concat(t.path, ' > ', r.title), concat(t.tree_order, '.', r.number)
    FROM tree AS t
    JOIN ranked AS r ON r.above = t.node
),
inside AS (
    SELECT above AS node, sum(ns) AS ns
    FROM _range_nodes
    WHERE above IS NOT NULL
    GROUP BY above
),
outside AS (
    SELECT report_id, '(several threads have open ranges)' AS title, several_ns AS ns, '99997' AS tree_order
    FROM totals
    UNION ALL
    SELECT report_id, '(no launching call recorded)', uncalled_ns, '99998'
    FROM totals
    UNION ALL
    SELECT
        report_id, '(no open range)', outside_ns - coalesce(several_ns, 0) - coalesce(uncalled_ns, 0),
        '99999'
    FROM totals
),
listed AS (
    SELECT r.*, greatest(0, r.ns - coalesce(i.ns, 0)) AS own_ns
    FROM tree AS r
    LEFT JOIN inside AS i USING (node)
    UNION ALL BY NAME
    SELECT *, title AS path, 0 AS depth, ns AS own_ns
    FROM outside
    SEMI JOIN tree USING (report_id)
    WHERE ns > 0
)
SELECT
    t.report_id,
    r.path,
    r.title AS range,
    r.depth,
    r.instances,
    r.ns AS gpu_time_ns,
    r.own_ns::BIGINT AS own_gpu_time_ns,
    100.0 * r.ns / nullif(t.ns, 0) AS share_pct,
    r.ns / r.instances AS mean_ns,
    r.backward_ns AS backward_time_ns,
    r.host_ns AS host_time_ns,
    r.tree_order
FROM listed AS r
JOIN totals AS t USING (report_id)
ORDER BY t.report_id, r.tree_order;
