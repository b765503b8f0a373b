-- Kernels in the windows of operators, each with its operator.  What lies between two products on a stream is
-- a chain: its pointwise kernels belong to the operator of the chain, and batch norm that only scales and
-- shifts to that with statistics.
-- @materialize
CREATE VIEW _operator_launches AS
WITH named AS (
    SELECT
        t.track,
        l.stream,
        l.op_id,
        n.demangled,
        l.start_ns,
        l.end_ns - l.start_ns AS dur_ns,
        n.short_name,
        n.category,
        n.operator
    FROM launches AS l
    JOIN _tracks AS t
        ON t.report_id = l.report_id
            AND t.pid IS NOT DISTINCT FROM l.pid
            AND t.cuda_device IS NOT DISTINCT FROM l.device
    JOIN _operator_windows AS w ON w.track = t.track AND l.start_ns >= w.start_ns AND l.start_ns < w.end_ns
    JOIN _operator_names AS n
        ON n.report_id = l.report_id AND n.demangled = coalesce(l.demangled, l.name)
    WHERE l.kind = 'kernel'
),
chains AS (
    SELECT
        *,
        -- With FILTER a running count takes 25 times as long.
        count(if(operator = 'product', 1, NULL)) OVER (
            PARTITION BY track, stream ORDER BY start_ns, op_id
        ) AS chain
    FROM named
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
    category,
    dur_ns,
    if(operator IN ('pointwise', 'fixed_batch_norm'), chain_operator(best), operator) AS operator
FROM judged;
