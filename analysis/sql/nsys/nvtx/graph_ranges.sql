-- GPU time of kernels in CUDA graphs, by the NVTX range in which each kernel's graph node was created. A
-- graph is captured inside the ranges of the model's layers but launched outside them. A cloned node is
-- assigned to the range in which its original was created. The view covers the analyzed windows. The view
-- requires a profile with --cuda-graph-trace=node that includes the creation of the graph.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- path VARCHAR: up to four ranges that were open on the creating thread when the node was created,
--   outermost first; NULL if no range was open or the creation was not recorded
-- reason VARCHAR: why path is NULL: no_creation (the node was created before the capture began) or no_range
-- nodes BIGINT: number of distinct graph nodes
-- launches BIGINT: number of executions
-- time_ns BIGINT: sum of the kernel durations, ns
-- share_pct DOUBLE: percentage of the time of all graph kernels on this GPU
-- longest VARCHAR: short name of the kernel with the largest total time
CREATE VIEW graph_ranges AS
WITH RECURSIVE nodes AS (
    SELECT DISTINCT report_id, graph_node_id
    FROM nsys_kernels
    WHERE graph_node_id IS NOT NULL
),
events AS (
    SELECT DISTINCT ON (report_id, graph_node_id)
        report_id, graph_node_id, original_graph_node_id AS original, pid, tid, start_ns
    FROM nsys_graph_nodes
    -- A cloned node has two events; one of them states the node that it was cloned from.
    ORDER BY report_id, graph_node_id, original_graph_node_id IS NULL, start_ns
),
origins AS (
    SELECT report_id, graph_node_id, graph_node_id AS origin, 0 AS steps
    FROM nodes
    UNION ALL
    -- Graphs are cloned for children and for execution, a few times at most.
    SELECT o.report_id, o.graph_node_id, e.original, o.steps + 1
    FROM origins AS o
    JOIN events AS e ON e.report_id = o.report_id AND e.graph_node_id = o.origin
    WHERE e.original IS NOT NULL AND o.steps < 8
),
created AS (
    SELECT o.report_id, o.graph_node_id, e.pid, e.tid, e.start_ns
    FROM (
        SELECT report_id, graph_node_id, arg_max(origin, steps) AS origin
        FROM origins
        GROUP BY report_id, graph_node_id
    ) AS o
    LEFT JOIN events AS e ON e.report_id = o.report_id AND e.graph_node_id = o.origin
),
around AS (
    SELECT
        c.report_id,
        c.graph_node_id,
        list(nsys_range_name(r.domain, range_stem(r.name)) ORDER BY r.level) AS ranges
    FROM created AS c
    JOIN (FROM nsys_nvtx_ranges SEMI JOIN nsys_graph_nodes USING (report_id, pid, tid)) AS r
        ON r.report_id = c.report_id AND r.pid = c.pid AND r.tid = c.tid
            AND r.start_ns <= c.start_ns AND r.end_ns >= c.start_ns
    WHERE NOT is_of_profiler(r.domain)
    GROUP BY c.report_id, c.graph_node_id
),
named AS (
    SELECT
        c.report_id,
        c.graph_node_id,
        array_to_string(a.ranges[-4:], ' > ') AS path,
        CASE WHEN c.start_ns IS NULL THEN 'no_creation' WHEN a.ranges IS NULL THEN 'no_range' END AS reason
    FROM created AS c
    LEFT JOIN around AS a USING (report_id, graph_node_id)
),
uses AS (
    SELECT l.report_id, l.track, n.path, n.reason, l.graph_node_id, k.short_name,
        count(*) AS launches, sum(l.end_ns - l.start_ns) AS time_ns
    FROM _analysed_launches AS l
    JOIN named AS n USING (report_id, graph_node_id)
    LEFT JOIN kernel_names AS k
        ON k.report_id = l.report_id AND k.demangled = coalesce(l.demangled, l.name)
    WHERE l.kind = 'kernel' AND l.graph_node_id IS NOT NULL
    GROUP BY ALL
),
sums AS (
    SELECT report_id, track, path, reason, count(DISTINCT graph_node_id) AS nodes,
        sum(launches)::BIGINT AS launches, sum(time_ns)::BIGINT AS time_ns,
        arg_max(short_name, (time_ns, short_name)) AS longest
    FROM uses
    GROUP BY report_id, track, path, reason
)
SELECT
    s.report_id,
    g.device,
    s.path,
    s.reason,
    s.nodes,
    s.launches,
    s.time_ns,
    100.0 * s.time_ns / nullif(sum(s.time_ns) OVER (PARTITION BY s.track), 0) AS share_pct,
    s.longest
FROM sums AS s
JOIN _gpus AS g USING (track)
ORDER BY s.report_id, g.device, s.time_ns DESC, s.path;
