-- PyTorch operators by the shapes and types of their inputs, with the GPU time of the work that they launched
-- directly (not through nested operators). The view covers the analyzed windows (analysis_windows). The view
-- requires a torch.profiler trace with record_shapes=True.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by time; 1 is the longest
-- operator VARCHAR: name of the operator, such as aten::mm
-- shapes VARCHAR: dimensions of each input as JSON
-- types VARCHAR: data type of each input as JSON
-- calls BIGINT: number of calls that launched work
-- launches BIGINT: number of GPU operations
-- time_ns BIGINT: total duration of the GPU operations, ns
-- share_pct DOUBLE: percentage of the total duration of all GPU operations within the windows
-- mean_ns DOUBLE: mean GPU time per call, ns
-- longest VARCHAR: name of the operation with the largest total time
CREATE VIEW operator_shapes AS
-- GPU operations in the analyzed windows that a PyTorch operator with known shapes launched directly: it is
-- the innermost range of the launching call.
WITH shaped_launches AS (
    SELECT
        l.track,
        l.report_id,
        l.range_id,
        r.name AS operator,
        o.shapes,
        o.types,
        l.name,
        l.demangled,
        l.end_ns - l.start_ns AS dur_ns
    FROM _analysed_launches AS l
    JOIN torch_operators AS o ON o.report_id = l.report_id AND o.range_id = l.range_id
    JOIN nsys_nvtx_ranges AS r ON r.report_id = l.report_id AND r.range_id = l.range_id
    WHERE l.range_source = 'own thread'
),
sums AS (
    SELECT
        track, operator, shapes, types, name,
        count(DISTINCT range_id) AS calls, count(*) AS launches, sum(dur_ns) AS time_ns
    FROM shaped_launches
    GROUP BY track, operator, shapes, types, name
),
calls AS (
    SELECT track, operator, shapes, types, count(DISTINCT range_id) AS calls
    FROM shaped_launches
    GROUP BY track, operator, shapes, types
),
totals AS (
    SELECT track, sum(end_ns - start_ns) AS time_ns
    FROM _analysed_launches
    GROUP BY track
),
operators AS (
    SELECT
        s.track,
        s.operator,
        s.shapes,
        s.types,
        any_value(c.calls) AS calls,
        sum(s.launches)::BIGINT AS launches,
        sum(s.time_ns)::BIGINT AS time_ns,
        arg_max(s.name, (s.time_ns, s.name)) AS longest
    FROM sums AS s
    JOIN calls AS c
        ON c.track = s.track AND c.operator = s.operator AND c.shapes = s.shapes
            AND c.types IS NOT DISTINCT FROM s.types
    GROUP BY s.track, s.operator, s.shapes, s.types
)
SELECT
    g.report_id,
    g.device,
    row_number() OVER (
        PARTITION BY g.report_id, g.device ORDER BY o.time_ns DESC, o.operator, o.shapes, o.types
    ) AS rank,
    o.operator,
    o.shapes,
    o.types,
    o.calls,
    o.launches,
    o.time_ns,
    100.0 * o.time_ns / nullif(t.time_ns, 0) AS share_pct,
    o.time_ns / o.calls AS mean_ns,
    o.longest
FROM operators AS o
JOIN _gpus AS g USING (track)
JOIN totals AS t USING (track)
ORDER BY g.report_id, g.device, rank;
