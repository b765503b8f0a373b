-- Each GPU's kernel time by the data type that the kernel name indicates, in the same steps as
-- operator_times. Compiler-generated names (XLA, Inductor, Triton) do not indicate a type.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- type VARCHAR: data type: narrow (16 bits or fewer), single (FP32, or TF32 in matrix products) or other
--   (FP64, integers and unknown types, as well as optimizers and communication)
-- launches BIGINT: number of launches during the covered steps
-- steps BIGINT: number of covered steps, as in operator_times; NULL if there are no steps
-- time_ns BIGINT: sum of the kernel durations, ns
-- share_pct DOUBLE: percentage of the covered time
-- kernel_pct DOUBLE: percentage of the kernel time within the covered time
-- tf32_ns BIGINT: part of time_ns spent in kernels whose names indicate TF32, ns
-- product_ns BIGINT: part of time_ns spent in matrix products, convolutions and attention that do not use
--   TF32, ns
-- kernels BIGINT: number of distinct kernels
-- longest VARCHAR: short names of the four kernels with the largest total time, with their percentages of
--   the covered time, as text
CREATE VIEW precision_times AS
WITH sums AS (
    SELECT track, demangled, any_value(short_name) AS short_name, any_value(category) AS category,
        count(*) AS launches, sum(dur_ns) AS time_ns
    FROM _operator_launches
    GROUP BY track, demangled
),
typed AS (
    SELECT
        *,
        category IN ('gemm', 'convolution', 'attention') AS is_product,
        CASE
            -- Optimizers keep FP32 states whatever the activations are.
            WHEN category IN ('optimizer', 'communication') THEN 'other'
            WHEN is_product AND kernel_operands(demangled) IN ('narrow', 'half') THEN 'narrow'
            ELSE kernel_precision(demangled)
        END AS type
    FROM sums
),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY track, type ORDER BY time_ns DESC, demangled) AS place
    FROM typed
)
SELECT
    g.report_id,
    g.device,
    t.type,
    sum(t.launches)::BIGINT AS launches,
    any_value(p.steps) AS steps,
    sum(t.time_ns)::BIGINT AS time_ns,
    100.0 * sum(t.time_ns) / nullif(any_value(p.time_ns), 0) AS share_pct,
    100.0 * sum(t.time_ns) / sum(sum(t.time_ns)) OVER (PARTITION BY t.track) AS kernel_pct,
    sum(if(uses_tf32(t.demangled), t.time_ns, 0))::BIGINT AS tf32_ns,
    sum(if(t.is_product AND NOT uses_tf32(t.demangled), t.time_ns, 0))::BIGINT AS product_ns,
    count(*) AS kernels,
    longest_kernels(t.short_name, t.time_ns, p.time_ns, t.place) AS longest
FROM placed AS t
JOIN _gpus AS g USING (track)
JOIN _operator_spans AS p USING (track)
GROUP BY t.track, g.report_id, g.device, t.type
ORDER BY g.report_id, g.device, time_ns DESC, t.type;
