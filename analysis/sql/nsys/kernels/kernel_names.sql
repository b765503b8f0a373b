-- The kernels of each report, each name once: a short name that tells it from all others, and what it does.
-- Timelines and profiled kernels have rows; the same kernel has the same short name in all open reports.
-- @materialize
--
-- report_id: report
-- name: function name
-- demangled: full name, as in nsys_kernels and ncu_launches
-- short_name: function with the functor or operator inside its template, as far as needed to tell it from
--   other kernels; at most 60 characters
-- category: gemm, convolution, attention, normalization, softmax, elementwise, reduction, optimizer,
--   gather_scatter, sort, rng, copy, communication or other (analysis/kernels.toml)
CREATE VIEW kernel_names AS
WITH judged AS (
    -- Many reports have the same kernels.
    SELECT name, demangled, kernel_category(name, demangled) AS category
    FROM (SELECT DISTINCT name, demangled FROM _known_kernels)
)
SELECT
    n.report_id,
    n.name,
    n.demangled,
    n.short_name,
    j.category
FROM _known_kernels AS n
JOIN judged AS j ON j.name = n.name AND j.demangled = n.demangled
ORDER BY n.report_id, n.demangled;
