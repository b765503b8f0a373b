-- Each GPU's time in operators that consist of many kernels and run between matrix products, convolutions
-- and attention. A chain of pointwise kernels between two such products counts toward the operator in that
-- chain: for example, casts of logits count toward cross-entropy, and a ReLU counts toward batch norm. The
-- view covers the ten analyzed steps with durations nearest to the median, or all of the analyzed time if
-- there are no steps.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- operator VARCHAR: cross_entropy, batch_norm, fixed_batch_norm (only scale and shift, as in inference),
--   normalization, softmax, pointwise (a chain without any of these operators), layout (conversion of the
--   memory layout), optimizer (one launch per operation) or fused_optimizer
-- launches BIGINT: number of launches during the covered steps
-- steps BIGINT: number of covered steps; NULL if there are no steps
-- time_ns BIGINT: sum of the kernel durations, ns
-- share_pct DOUBLE: percentage of the covered time
-- own_pct DOUBLE: percentage of the covered time spent in the operator's own kernels, without the adjacent
--   pointwise kernels
-- kernels BIGINT: number of distinct kernels
-- longest VARCHAR: short names of the four kernels with the largest total time, with their percentages of
--   the covered time, as text
-- names VARCHAR[]: full names of the operator's kernels, largest total time first
CREATE VIEW operator_times AS
WITH sums AS (
    SELECT track, operator, demangled, any_value(short_name) AS short_name, bool_and(own) AS own,
        count(*) AS launches, sum(dur_ns) AS time_ns
    FROM _operator_launches
    WHERE operator NOT IN ('none', 'product')
    GROUP BY track, operator, demangled
),
ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY track, operator ORDER BY time_ns DESC, demangled) AS place
    FROM sums
)
SELECT
    g.report_id,
    g.device,
    r.operator,
    sum(r.launches)::BIGINT AS launches,
    any_value(s.steps) AS steps,
    sum(r.time_ns)::BIGINT AS time_ns,
    100.0 * sum(r.time_ns) / nullif(any_value(s.time_ns), 0) AS share_pct,
    100.0 * coalesce(sum(r.time_ns) FILTER (r.own), 0) / nullif(any_value(s.time_ns), 0) AS own_pct,
    count(*) AS kernels,
    longest_kernels(r.short_name, r.time_ns, s.time_ns, r.place) AS longest,
    list(r.demangled ORDER BY r.place) AS names
FROM ranked AS r
JOIN _gpus AS g USING (track)
JOIN _operator_spans AS s USING (track)
GROUP BY g.report_id, g.device, r.operator
ORDER BY g.report_id, g.device, time_ns DESC, r.operator;
