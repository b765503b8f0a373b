-- What bounds a step's kernel time: the classes of the profiled kernels, weighted by their time on the
-- timeline in the analyzed window (the steady steps, if there are steps). The shares of a GPU add up to 100
-- %. Kernels that were not profiled count as unknown, and communication is a class of its own.
--
-- report_id VARCHAR: nsys report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by total time, from 1 for the longest
-- bound VARCHAR: bound as in kernel_bottleneck, communication, or unknown
-- subclass VARCHAR: limiter, as in kernel_bottleneck; for unknown, not_profiled or not_classified
-- kernels BIGINT: number of kernel configurations (name, grid, block); each configuration is counted only in
--   the class in which it spends most of its time
-- time_ns BIGINT: sum of the kernel durations in the window, ns
-- share_pct DOUBLE: share of the window's kernel time, %
-- sol_pct DOUBLE: mean of each kernel's SOL (the larger of compute and memory SOL), weighted by time on the
--   timeline, %
-- headroom_pct DOUBLE: SOL headroom: time x (1 - max SOL), the time saved if the same work ran at 100 % SOL,
--   % of the window's kernel time; NULL if unknown
CREATE VIEW step_bounds AS
WITH classed AS (
    SELECT
        *,
        CASE
            WHEN communication THEN 'communication'
            WHEN ncu_launches IS NULL THEN 'unknown'
            ELSE coalesce(bound, 'unknown')
        END AS class,
        CASE
            WHEN communication THEN NULL
            WHEN ncu_launches IS NULL THEN 'not_profiled'
            WHEN coalesce(bound, 'unknown') = 'unknown' THEN 'not_classified'
            ELSE subclass
        END AS limiter,
        -- Profiled and other launches of one configuration are two rows.
        row_number() OVER (
            PARTITION BY report_id, device, demangled, grid, block ORDER BY time_ns DESC, class, limiter
        ) = 1 AS counts
    FROM _step_kernels
),
sums AS (
    SELECT
        report_id,
        device,
        class AS bound,
        limiter AS subclass,
        count(*) FILTER (counts) AS kernels,
        sum(time_ns)::BIGINT AS time_ns,
        time_weighted(CASE WHEN NOT communication THEN max_sol_pct END, time_ns) AS sol_pct
    FROM classed
    GROUP BY report_id, device, class, limiter
),
shares AS (
    SELECT
        *,
        100.0 * time_ns / nullif(sum(time_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct
    FROM sums
)
SELECT
    report_id,
    device,
    row_number() OVER (
        PARTITION BY report_id, device ORDER BY time_ns DESC, bound, subclass NULLS FIRST
    ) AS rank,
    bound,
    subclass,
    kernels,
    time_ns,
    share_pct,
    sol_pct,
    share_pct * headroom(sol_pct) / 100 AS headroom_pct
FROM shares
ORDER BY report_id, device, rank;
