-- Kernels with their operators.  What lies between two products on a stream is a chain: its pointwise kernels
-- belong to the operator of the chain, and batch norm that only scales and shifts to that with statistics.
-- @materialize
CREATE VIEW _operator_launches AS
WITH chains AS (
    SELECT
        *,
        -- With FILTER a running count takes 25 times as long.
        count(if(operator = 'product', 1, NULL)) OVER (
            PARTITION BY track, stream ORDER BY start_ns, op_id
        ) AS chain
    FROM _operator_candidates
),
judged AS (
    SELECT
        *,
        min(chain_rank(operator)) OVER (PARTITION BY track, stream, chain) AS best
    FROM chains
)
SELECT
    track,
    demangled,
    short_name,
    dur_ns,
    if(operator IN ('pointwise', 'fixed_batch_norm'), chain_operator(best), operator) AS operator
FROM judged
WHERE operator != 'product';
