-- Executions of kernels on each GPU by name, in the windows that verdicts are about; views on
-- kernel time read operations only through it.
-- Durations are summed as nsys does: overlapping kernels count twice.
-- @materialize
CREATE VIEW _kernel_uses AS
WITH sums AS (
    -- The names stay as they are stored: anything computed from them would be computed per launch.
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
