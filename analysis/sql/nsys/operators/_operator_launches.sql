-- Kernels in the windows of operators, each with its operator. The kernels between two products on a stream
-- are a chain: its pointwise kernels belong to the operator of the chain, and batch norm with only scale and
-- shift belongs to batch norm with statistics.
-- @materialize
CREATE VIEW _operator_launches AS
WITH told AS (
    SELECT *, nullif(kernel_operator(name, demangled), 'none') AS told FROM kernel_names
),
-- Kernels of each report with the operator that their names indicate: a product (matrix product, convolution,
-- attention), an operator of operators.toml, pointwise (elementwise operations, copies and reductions of a
-- framework), or none. XLA and Inductor have already fused their pointwise kernels; operators that they do
-- not fuse with matrix products remain: softmax, cross-entropy, batch norm of inference.
operator_names AS (
    SELECT
        report_id,
        demangled,
        short_name,
        category,
        CASE
            WHEN category = 'communication' THEN 'none'
            WHEN is_generated(library)
                AND coalesce(told, category) IN ('batch_norm', 'normalization', 'optimizer')
                THEN 'none'
            WHEN told IS NOT NULL THEN told
            WHEN category IN ('gemm', 'convolution', 'attention') THEN 'product'
            -- A kernel with the name of an optimizer makes the whole update of its parameters.
            WHEN category = 'optimizer'
                THEN if(starts_with(name, 'multi_tensor_apply'), 'optimizer', 'fused_optimizer')
            WHEN category IN ('normalization', 'softmax') THEN category
            WHEN is_generated(library) OR library IN ('triton', 'own', 'cutlass') THEN 'none'
            WHEN category IN ('elementwise', 'copy', 'reduction') THEN 'pointwise'
            ELSE 'none'
        END AS operator
    FROM told
),
names AS MATERIALIZED (
    -- Window functions sort numbers instead of names.
    SELECT *, chain_rank(operator) AS rank, (row_number() OVER ())::INTEGER AS number
    FROM operator_names
),
named AS (
    SELECT
        t.track,
        l.stream,
        l.op_id,
        l.start_ns,
        l.end_ns - l.start_ns AS dur_ns,
        n.number,
        n.rank,
        n.operator = 'product' AS product
    FROM launches AS l
    JOIN _tracks AS t
        ON t.report_id = l.report_id
            AND t.pid IS NOT DISTINCT FROM l.pid
            AND t.cuda_device IS NOT DISTINCT FROM l.device
    JOIN _operator_windows AS w ON w.track = t.track AND l.start_ns >= w.start_ns AND l.start_ns < w.end_ns
    JOIN names AS n
        ON n.report_id = l.report_id AND n.demangled = coalesce(l.demangled, l.name)
    WHERE l.kind = 'kernel'
),
chains AS (
    SELECT
        *,
        -- A running count with FILTER takes 25 times as long.
        count(if(product, 1, NULL)) OVER (
            PARTITION BY track, stream ORDER BY start_ns, op_id
        ) AS chain
    FROM named
),
judged AS (
    SELECT
        track,
        stream,
        chain,
        dur_ns,
        number,
        min(rank) OVER (PARTITION BY track, stream, chain) AS best
    FROM chains
)
SELECT
    j.track,
    j.stream,
    j.chain,
    n.demangled,
    n.short_name,
    n.category,
    j.dur_ns,
    if(n.operator IN ('pointwise', 'fixed_batch_norm'), chain_operator(j.best), n.operator) AS operator,
    n.operator != 'pointwise' AS own
FROM judged AS j
JOIN names AS n USING (number);
