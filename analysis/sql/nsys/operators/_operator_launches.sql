-- Kernels in the windows of operators, each with its operator.  What lies between two products on a stream is
-- a chain: its pointwise kernels belong to the operator of the chain, and batch norm that only scales and
-- shifts to that with statistics.
-- @materialize
CREATE VIEW _operator_launches AS
WITH names AS MATERIALIZED (
    -- Windows sort numbers in place of names.
    SELECT *, chain_rank(operator) AS rank, (row_number() OVER ())::INTEGER AS number
    FROM _operator_names
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
        -- With FILTER a running count takes 25 times as long.
        count(if(product, 1, NULL)) OVER (
            PARTITION BY track, stream ORDER BY start_ns, op_id
        ) AS chain
    FROM named
),
judged AS (
    SELECT
        track,
        dur_ns,
        number,
        min(rank) OVER (PARTITION BY track, stream, chain) AS best
    FROM chains
)
SELECT
    j.track,
    n.demangled,
    n.short_name,
    n.category,
    j.dur_ns,
    if(n.operator IN ('pointwise', 'fixed_batch_norm'), chain_operator(j.best), n.operator) AS operator,
    n.operator != 'pointwise' AS own
FROM judged AS j
JOIN names AS n USING (number);
