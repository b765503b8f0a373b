-- Unique short name and category of each kernel in each report, for kernels on timelines and in ncu reports.
-- A kernel has the same short name in all open reports.
-- @materialize
--
-- report_id VARCHAR: report
-- name VARCHAR: function name
-- demangled VARCHAR: full name, as in kernels and ncu_launches
-- short_name VARCHAR: unique short name: the function name, plus as much of the functor or operator in its
--   template arguments as is needed to distinguish the kernel from other kernels; at most 60 characters
-- category VARCHAR: gemm, convolution, attention, normalization, softmax, elementwise, reduction, optimizer,
--   gather_scatter, sort, rng, copy, communication or other (analysis/kernels.toml)
-- library VARCHAR: library that contains the kernel's code, as in kernel_libraries; on a timeline, Triton
--   kernels are recognized only if an open ncu report contains them
-- operators VARCHAR: operators that torch.compile (Inductor) fused into the kernel, from its name, separated
--   by commas; NULL for other kernels
CREATE VIEW kernel_names AS
WITH judged AS (
    -- Many reports have the same kernels.
    SELECT
        name,
        demangled,
        kernel_category(name, demangled) AS category,
        kernel_library(name, demangled) AS library
    FROM (SELECT DISTINCT name, demangled FROM _known_kernels)
),
triton AS (
    SELECT DISTINCT l.kernel_demangled AS demangled
    FROM kernel_libraries AS k
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE k.library = 'triton'
)
SELECT
    n.report_id,
    n.name,
    n.demangled,
    n.short_name,
    j.category,
    CASE WHEN t.demangled IS NULL THEN j.library ELSE 'triton' END AS library,
    n.operators
FROM _known_kernels AS n
JOIN judged AS j ON j.name = n.name AND j.demangled = n.demangled
LEFT JOIN triton AS t ON t.demangled = n.demangled
ORDER BY n.report_id, n.demangled;
