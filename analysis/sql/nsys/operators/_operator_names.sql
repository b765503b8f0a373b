-- The kernels of each report with the operator that their names give away: a product (matrix product,
-- convolution, attention), one of operators.toml, pointwise (what elementwise operations, copies and
-- reductions of a framework do), or nothing of these.  XLA and Inductor have fused theirs already; what they
-- do not fuse with matrix products stays: softmax, cross-entropy, batch norm of inference.
-- @materialize
CREATE VIEW _operator_names AS
WITH told AS (
    SELECT *, nullif(kernel_operator(name, demangled), 'none') AS told FROM kernel_names
)
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
        WHEN category IN ('optimizer', 'normalization', 'softmax') THEN category
        WHEN is_generated(library) OR library IN ('triton', 'own', 'cutlass') THEN 'none'
        WHEN category IN ('elementwise', 'copy', 'reduction') THEN 'pointwise'
        ELSE 'none'
    END AS operator
FROM told;
