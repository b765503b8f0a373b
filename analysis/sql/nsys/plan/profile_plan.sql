-- Which kernels of a timeline to profile with ncu: those that take most time in the analyzed window (the
-- steady steps, where there are steps), until they cover 85 % of its kernel time.  ncu selects by name and
-- takes one launch of each size (grid, block, shared memory), which stands for those that take about as
-- long.  Communication is never among them: ncu replays a kernel several times, and one that waits for
-- other ranks would hang.  Of several ranks, one is profiled.  For totals see profile_plan_totals.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: 1 takes most time; communication is ranked apart
-- name VARCHAR: function name
-- demangled VARCHAR: name with template arguments, of the instance that takes most time
-- grid VARCHAR: blocks as x,y,z
-- block VARCHAR: threads as x,y,z
-- instances BIGINT: template instances and sizes of shared memory; ncu tells them apart
-- launches BIGINT: executions in the window
-- time_ns BIGINT: sum of their durations, ns
-- share_pct DOUBLE: share of the window's kernel time without communication, %; NULL for communication
-- cumulative_pct DOUBLE: share of this and all higher ranks, %; NULL for communication
-- chosen BOOLEAN: whether it is to be profiled
-- covered_pct DOUBLE: share that its profiles stand for: launches that take about as long as a profiled one,
--   %; NULL for communication
-- why VARCHAR: reason
-- ncu_names VARCHAR[]: names by which ncu selects the instances that are profiled: mangled, or functions
--   where the trace lacks mangled names
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
        WHEN communication THEN 'communication: replaying a kernel that waits for other ranks hangs'
        WHEN chosen THEN printf('among those that take %g %% of the time', threshold('plan.coverage_pct'))
        WHEN needed THEN printf('others stand for more time with %g launches', threshold('plan.max_kernels'))
        ELSE printf('%g %% of the time is covered without it', threshold('plan.coverage_pct'))
    END AS why,
    ncu_names
FROM ranked
ORDER BY report_id, communication, rank;
