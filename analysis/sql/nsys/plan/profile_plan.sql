-- Kernels of a timeline to profile with ncu: the kernels that take the most time within the analyzed window
-- (the steady steps, if there are steps), until these kernels cover 85 % of the window's kernel time. ncu
-- selects kernels by name and profiles one launch of each size (grid, block, shared memory). That profile
-- represents all launches with a similar duration. Communication kernels are never profiled: ncu replays each
-- kernel several times, and a kernel that waits for other ranks would hang. If the job has several ranks,
-- only one rank is profiled. For totals, see profile_plan_totals.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by time; 1 is the longest; communication is ranked separately
-- name VARCHAR: function name
-- demangled VARCHAR: name of the template instance with the largest total time, including template
--   arguments
-- grid VARCHAR: grid size in blocks, as x,y,z
-- block VARCHAR: block size in threads, as x,y,z
-- instances BIGINT: number of variants that ncu distinguishes: combinations of template instance and
--   shared-memory size
-- launches BIGINT: number of executions within the window
-- time_ns BIGINT: sum of the durations, ns
-- share_pct DOUBLE: percentage of the window's non-communication kernel time; NULL for communication
-- cumulative_pct DOUBLE: sum of share_pct over this kernel and all kernels ranked before it; NULL for
--   communication
-- chosen BOOLEAN: whether the kernel should be profiled
-- covered_pct DOUBLE: percentage of the window's non-communication kernel time spent in those launches of
--   this kernel whose duration is similar to that of a profiled launch; NULL for communication
-- why VARCHAR: reason why the kernel was or was not chosen
-- ncu_names VARCHAR[]: names that select the profiled instances in ncu: mangled names, or function names if
--   the trace does not contain mangled names
CREATE VIEW profile_plan AS
WITH own AS (
    SELECT k.*
    FROM _window_kernels AS k
    JOIN _profiled_process AS p
        ON p.report_id = k.report_id
            AND p.pid IS NOT DISTINCT FROM k.pid
            AND p.cuda_device IS NOT DISTINCT FROM k.cuda_device
    WHERE k.launches > 0 AND NOT k.flush
),
units AS (
    SELECT
        o.report_id,
        o.device,
        o.communication,
        o.name,
        o.grid,
        o.block,
        first(o.demangled ORDER BY o.time_ns DESC, o.demangled) AS demangled,
        count(*) AS instances,
        sum(o.launches)::BIGINT AS launches,
        sum(o.time_ns)::BIGINT AS time_ns,
        coalesce(bool_or(v.wanted AND v.gain_ns > 0), false) AS chosen,
        coalesce(bool_or(v.needed), false) AS needed,
        coalesce(sum(v.gain_ns) FILTER (v.wanted), 0)::BIGINT AS covered_ns,
        coalesce(list(DISTINCT v.filter_name ORDER BY v.filter_name) FILTER (v.wanted), []) AS ncu_names
    FROM own AS o
    LEFT JOIN _plan_variants AS v
        ON v.report_id = o.report_id
            AND v.config = o.config
    GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        row_number() OVER ordered AS rank,
        (sum(time_ns) OVER ordered)::BIGINT AS sum_ns,
        sum(time_ns) OVER (PARTITION BY report_id, communication) AS all_ns
    FROM units
    WINDOW ordered AS (
        PARTITION BY report_id, communication
        ORDER BY time_ns DESC, name, grid, block ROWS UNBOUNDED PRECEDING
    )
)
SELECT
    report_id,
    device,
    rank,
    name,
    demangled,
    grid,
    block,
    instances,
    launches,
    time_ns,
    if(communication, NULL, 100.0 * time_ns / nullif(all_ns, 0)) AS share_pct,
    if(communication, NULL, 100.0 * sum_ns / nullif(all_ns, 0)) AS cumulative_pct,
    chosen,
    if(communication, NULL, 100.0 * covered_ns / nullif(all_ns, 0)) AS covered_pct,
    CASE
        WHEN communication THEN 'communication: ncu hangs when replaying a kernel that waits for other ranks'
        WHEN chosen
            THEN printf('among the kernels that take %g %% of the time', threshold('plan.coverage_pct'))
        WHEN needed THEN printf('beyond the limit of %g launches', threshold('plan.max_kernels'))
        ELSE printf('other kernels already cover %g %% of the time', threshold('plan.coverage_pct'))
    END AS why,
    ncu_names
FROM ranked
ORDER BY report_id, communication, rank;
