-- Time of each GPU by operators that consist of many kernels: what lies between matrix products,
-- convolutions and attention.  A chain of pointwise kernels between two products belongs to the operator that
-- is part of it: the casts of logits to cross-entropy, a ReLU to batch norm.  Shares are of the ten
-- analyzed steps nearest to the median; without steps, of all of the analyzed time.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- operator VARCHAR: cross_entropy, batch_norm, fixed_batch_norm (only scales and shifts, as in inference),
--   normalization, softmax, pointwise (none of these is part of the chain), layout (conversions of the
--   memory layout), optimizer (a launch for each operation) or fused_optimizer
-- launches BIGINT: number of launches in those steps
-- steps BIGINT: number of those steps; NULL without steps
-- time_ns BIGINT: sum of their durations, ns
-- share_pct DOUBLE: share of the time of those steps, %
-- own_pct DOUBLE: share of the kernels that give it away, without the pointwise ones around them, %
-- kernels BIGINT: number of different kernels
-- longest VARCHAR: short names of the four kernels with most time, each with its share of the steps' time, as
--   text
-- names VARCHAR[]: their full names
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
