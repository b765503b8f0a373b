-- Executions of kernels on each GPU by name, in the windows that verdicts are about; views on
-- kernel time read operations only through it.
-- Durations are summed as nsys does: overlapping kernels count twice.
-- @materialize
CREATE VIEW _kernel_uses AS
WITH sums AS (
    -- The names stay as they are stored: anything computed from them would be computed per launch.
    SELECT
        l.report_id,
        l.pid,
        l.device,
        l.name,
        l.demangled,
        count(*) AS launches,
        sum(l.end_ns - l.start_ns) AS time_ns
    FROM launches AS l
    JOIN _analysed_spans AS w
        ON w.report_id = l.report_id
            AND w.pid IS NOT DISTINCT FROM l.pid
            AND w.cuda_device IS NOT DISTINCT FROM l.device
            AND l.start_ns >= w.start_ns
            AND l.start_ns < w.end_ns
    WHERE l.kind = 'kernel'
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
