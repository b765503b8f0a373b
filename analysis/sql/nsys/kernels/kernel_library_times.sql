-- Each GPU's kernel time during the steady steps (analysis_windows) by library.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- library VARCHAR: library, as in kernel_libraries; `own` (the program's own kernels) if no rule matches
-- closed BOOLEAN: whether the library is closed: users cannot change its kernels, only their calls to the
--   library
-- kernels BIGINT: number of distinct kernels by full name
-- launches BIGINT: number of executions
-- time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- share_pct DOUBLE: percentage of the GPU's total kernel time; NULL if the total is 0
-- longest VARCHAR: short name of the kernel with the largest total time
-- longest_pct DOUBLE: percentage of the library's time in the kernel with the largest total time; NULL if
--   the time is 0
CREATE VIEW kernel_library_times AS
WITH sums AS (
    SELECT
        g.report_id,
        g.device,
        n.library,
        count(*) AS kernels,
        sum(u.launches)::BIGINT AS launches,
        sum(u.time_ns)::BIGINT AS time_ns,
        arg_max(n.short_name, (u.time_ns, n.short_name)) AS longest,
        max(u.time_ns) AS longest_ns
    FROM _kernel_uses AS u
    JOIN _gpus AS g USING (track)
    JOIN kernel_names AS n ON n.report_id = g.report_id AND n.demangled = u.demangled
    GROUP BY g.report_id, g.device, n.library
)
SELECT
    report_id,
    device,
    library,
    is_closed(library) AS closed,
    kernels,
    launches,
    time_ns,
    100.0 * time_ns / nullif(sum(time_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct,
    longest,
    100.0 * longest_ns / nullif(time_ns, 0) AS longest_pct
FROM sums
ORDER BY report_id, device, time_ns DESC, library;
