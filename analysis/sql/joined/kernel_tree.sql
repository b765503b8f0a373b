-- Kernel time of each GPU during the steady steps (analysis_windows), as a tree: categories, then
-- libraries (if a category has several), then kernels by full name.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- place BIGINT: row number in the tree from top to bottom; rows of one level are sorted by time, longest
--   first
-- depth INTEGER: depth in the tree, 0 for a category
-- category VARCHAR: category, as in kernel_categories
-- library VARCHAR: library, as in kernel_libraries; NULL for a category with several libraries
-- kernel VARCHAR: short name of the kernel; on a subtotal row, the name of the category or library
-- name VARCHAR: full name of the kernel; NULL on a subtotal row
-- kernels BIGINT: number of distinct kernels, distinguished by full name
-- launches BIGINT: number of executions
-- time_ns BIGINT: total duration, ns; time during which two kernels overlap is counted twice
-- share_pct DOUBLE: share of the GPU's total kernel time, %; NULL if the total is 0
-- mean_ns DOUBLE: mean duration, ns
-- profiled_pct DOUBLE: share of the time spent in kernels that ncu profiled with the same name, grid and
--   block, %; NULL without ncu profiles
-- sol_pct DOUBLE: mean SOL (the larger of compute and memory SOL) of the profiled kernels, weighted by time
--   on the timeline, %
-- bound VARCHAR: bound that accounts for the most time, as in kernel_bottleneck; NULL on a subtotal row
-- operators VARCHAR: operators that torch.compile fused into the kernel, as in kernel_names; NULL on a
--   subtotal row
CREATE VIEW kernel_tree AS
WITH profiles AS (
    SELECT
        report_id,
        device,
        demangled,
        time_weighted(max_sol_pct, time_ns) AS sol_pct,
        coalesce(sum(time_ns) FILTER (max_sol_pct IS NOT NULL), 0) AS sol_ns,
        arg_max(bound, (time_ns, bound)) AS bound
    FROM _step_kernels
    GROUP BY report_id, device, demangled
),
kernels AS (
    SELECT
        g.report_id, g.device, n.category, n.library, n.short_name, n.operators,
        u.demangled, u.launches, u.time_ns,
        p.sol_pct, p.sol_ns, p.bound,
        count(*) OVER (PARTITION BY g.report_id, g.device, n.category)
            > count(*) OVER (PARTITION BY g.report_id, g.device, n.category, n.library) AS mixed
    FROM _kernel_uses AS u
    JOIN _gpus AS g USING (track)
    JOIN kernel_names AS n ON n.report_id = g.report_id AND n.demangled = u.demangled
    LEFT JOIN profiles AS p
        ON p.report_id = g.report_id AND p.device = g.device AND p.demangled = u.demangled
),
sums AS (
    SELECT
        report_id,
        device,
        category,
        library,
        demangled,
        bool_or(mixed) AS mixed,
        grouping(library) = 1 AS of_category,
        grouping(demangled) = 1 AS of_several,
        min(library) AS of_library,
        any_value(short_name) AS short_name,
        any_value(operators) AS operators,
        count(*) AS kernels,
        sum(launches)::BIGINT AS launches,
        sum(time_ns)::BIGINT AS time_ns,
        sum(sol_ns)::BIGINT AS sol_ns,
        time_weighted(sol_pct, sol_ns) AS sol_pct,
        any_value(bound) AS bound
    FROM kernels
    GROUP BY report_id, device, GROUPING SETS (
        (category), (category, library), (category, library, demangled)
    )
    HAVING grouping(library) = 1 OR grouping(demangled) = 0 OR bool_or(mixed)
),
placed AS (
    SELECT
        *,
        max(time_ns) OVER (PARTITION BY report_id, device, category) AS category_ns,
        max(time_ns) OVER (PARTITION BY report_id, device, category, library) AS library_ns,
        sum(time_ns) FILTER (of_category) OVER (PARTITION BY report_id, device) AS every_ns
    FROM sums
)
SELECT
    report_id,
    device,
    row_number() OVER (
        PARTITION BY report_id, device
        ORDER BY category_ns DESC, category, of_category DESC, library_ns DESC, library,
            of_several DESC, time_ns DESC, demangled
    ) AS place,
    CASE WHEN of_category THEN 0 WHEN of_several OR NOT mixed THEN 1 ELSE 2 END AS depth,
    category,
    CASE WHEN NOT (of_category AND mixed) THEN of_library END AS library,
    CASE WHEN of_category THEN category WHEN of_several THEN library ELSE short_name END AS kernel,
    demangled AS name,
    kernels,
    launches,
    time_ns,
    100.0 * time_ns / nullif(every_ns, 0) AS share_pct,
    time_ns / nullif(launches, 0) AS mean_ns,
    least(100.0, 100.0 * sol_ns / nullif(time_ns, 0)) AS profiled_pct,
    sol_pct,
    CASE WHEN NOT of_several THEN bound END AS bound,
    CASE WHEN NOT of_several THEN operators END AS operators
FROM placed
ORDER BY report_id, device, place;
