-- Executions of kernels on each GPU by name; views on kernel time read operations only through it.
-- Durations are summed as nsys does: overlapping kernels count twice.
-- @materialize
CREATE VIEW _kernel_uses AS
WITH sums AS (
    -- The names stay as they are stored: anything computed from them would be computed per launch.
    SELECT report_id, pid, device, name, demangled, count(*) AS launches, sum(end_ns - start_ns) AS time_ns
    FROM launches
    WHERE kind = 'kernel'
    GROUP BY ALL
)
SELECT
    t.track,
    coalesce(s.demangled, s.name) AS demangled,
    sum(s.launches)::BIGINT AS launches,
    coalesce(sum(s.time_ns), 0)::BIGINT AS time_ns
FROM sums AS s
JOIN _tracks AS t
    ON t.report_id = s.report_id
        AND t.pid IS NOT DISTINCT FROM s.pid
        AND t.cuda_device IS NOT DISTINCT FROM s.device
GROUP BY ALL;
