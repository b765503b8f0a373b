-- What bounds the profiled time: the classes with their share, and their SOL weighted by share.
CREATE VIEW _kernel_verdict AS
WITH shares AS (
    SELECT
        bound,
        subclass,
        sum(share_pct ORDER BY rank) AS share_pct,
        sum(share_pct * sol_pct ORDER BY rank) / nullif(sum(share_pct ORDER BY rank), 0) AS sol_pct,
        min(rank) AS rank
    FROM kernel_classes
    GROUP BY bound, subclass
)
SELECT
    row_number() OVER (ORDER BY share_pct DESC, rank) AS rank,
    bound,
    subclass,
    share_pct,
    sol_pct,
    sol_pct >= threshold('finding.secondary_sol_pct') AS near_limit
FROM shares
ORDER BY rank;
