-- Which kernels of a timeline to profile with ncu: the configurations (function, grid, block) that take
-- most time in the analyzed window (the steady steps, where there are steps), until they cover 80 % of
-- its kernel time or are 20.  Communication is never among them: ncu replays a kernel several times,
-- and one that waits for other ranks would hang.  Of several ranks, one is profiled.  For totals see
-- profile_plan_totals.
--
-- report_id: report
-- device: physical GPU number
-- rank: 1 takes most time; communication is ranked apart
-- name: function name
-- demangled: name with template arguments, of the instance that takes most time
-- grid: blocks as x,y,z
-- block: threads as x,y,z
-- instances: template instances and sizes of shared memory; ncu tells them apart
-- launches: executions in the window
-- time_ns: sum of their durations, ns
-- share_pct: share of the window's kernel time without communication, %; NULL for communication
-- cumulative_pct: share of this and all higher ranks, %; NULL for communication
-- chosen: whether it is to be profiled
-- why: reason
-- ncu_names: names by which ncu selects the instances that are profiled: mangled, or functions where
--   the trace lacks mangled names
CREATE VIEW profile_plan AS
SELECT
    report_id,
    device,
    place AS rank,
    name,
    first(demangled ORDER BY time_ns DESC, demangled) AS demangled,
    grid,
    block,
    count(*) AS instances,
    sum(launches)::BIGINT AS launches,
    sum(time_ns)::BIGINT AS time_ns,
    any_value(share_pct) FILTER (NOT communication) AS share_pct,
    any_value(cumulative_pct) FILTER (NOT communication) AS cumulative_pct,
    chosen,
    CASE
        WHEN communication THEN 'communication: replaying a kernel that waits for other ranks hangs'
        WHEN chosen THEN printf('among those that take %g %% of the time', threshold('plan.coverage_pct'))
        WHEN needed THEN printf('there are %g longer ones', threshold('plan.max_kernels'))
        ELSE printf('%g %% of the time is covered without it', threshold('plan.coverage_pct'))
    END AS why,
    coalesce(list(DISTINCT filter_name ORDER BY filter_name) FILTER (wanted), []) AS ncu_names
FROM _plan_variants
GROUP BY report_id, device, place, name, grid, block, communication, chosen, needed
ORDER BY report_id, communication, rank;
