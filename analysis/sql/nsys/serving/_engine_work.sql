-- Work of the GPU in each iteration of an engine, ns: kernels, copies without kernels, and the span from its
-- first to its last operation; and the number of calls that launched CUDA graphs.
CREATE VIEW _engine_work AS
WITH ops AS (
    SELECT
        i.report_id, i.iteration, i.start_ns AS from_ns, i.end_ns AS until_ns, o.class, o.start_ns, o.end_ns,
        o.busy_until, o.kernels_until, o.call_id, l.kind = 'graph' OR l.graph_node_id IS NOT NULL AS of_graph
    FROM (FROM _ops SEMI JOIN _served_captures USING (track)) AS o
    ASOF JOIN _engine_iterations AS i ON i.track = o.track AND i.start_ns <= o.start_ns
    JOIN launches AS l ON l.report_id = i.report_id AND l.op_id = o.op_id
    WHERE o.start_ns < i.end_ns
)
SELECT
    report_id,
    iteration,
    coalesce(sum(greatest(0, least(end_ns, until_ns) - greatest(start_ns, kernels_until)))
        FILTER (class != 'transfer'), 0)::BIGINT AS kernels_ns,
    sum(greatest(0, least(end_ns, until_ns) - greatest(start_ns, busy_until)))::BIGINT AS busy_ns,
    (max(least(end_ns, until_ns)) - min(start_ns))::BIGINT AS span_ns,
    count(DISTINCT call_id) FILTER (of_graph) AS graphs
FROM ops
GROUP BY report_id, iteration;
