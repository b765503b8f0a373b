-- The kernels of each report with the operator that their names give away: a product (matrix product,
-- convolution, attention), one of operators.toml, pointwise (what elementwise operations, copies and
-- reductions of a framework do), or nothing of these.  XLA and Inductor have fused theirs already; what they
-- do not fuse with matrix products stays: softmax, cross-entropy, batch norm of inference.
-- @materialize
CREATE VIEW _operator_names AS
SELECT
    report_id,
    demangled,
    short_name,
    CASE
        WHEN category = 'communication' THEN 'none'
        WHEN library IN ('xla', 'inductor')
            AND coalesce(nullif(kernel_operator(name, demangled), 'none'), category)
                IN ('batch_norm', 'normalization', 'optimizer')
            THEN 'none'
        WHEN kernel_operator(name, demangled) != 'none' THEN kernel_operator(name, demangled)
        WHEN category IN ('gemm', 'convolution', 'attention') THEN 'product'
        WHEN category IN ('optimizer', 'normalization', 'softmax') THEN category
        WHEN library IN ('xla', 'inductor', 'triton', 'own', 'cutlass') THEN 'none'
        WHEN category IN ('elementwise', 'copy', 'reduction') THEN 'pointwise'
        ELSE 'none'
    END AS operator
FROM kernel_names;
