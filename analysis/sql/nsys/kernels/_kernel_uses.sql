-- Executions of kernels on each GPU by name, in the analyzed windows. Views of kernel time read operations
-- only through this view. Durations are summed as in nsys: overlapping kernels count twice.
-- @materialize
CREATE VIEW _kernel_uses AS
WITH sums AS (
    -- Names are used as stored, because any value computed from them would be computed per launch.
    SELECT track, name, demangled, count(*) AS launches, sum(end_ns - start_ns) AS time_ns
    FROM _analysed_launches
    WHERE kind = 'kernel'
    GROUP BY ALL
)
SELECT
    track,
    coalesce(demangled, name) AS demangled,
    sum(launches)::BIGINT AS launches,
    coalesce(sum(time_ns), 0)::BIGINT AS time_ns
FROM sums
GROUP BY track, coalesce(sums.demangled, sums.name);
