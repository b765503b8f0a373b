-- The kernels of each report, each name once: a short name that tells it from all others of the report, and
-- what it does.  Timelines and profiled kernels have rows.
-- @materialize
--
-- report_id: report
-- name: function name
-- demangled: full name, as in nsys_kernels and ncu_launches
-- short_name: function with the functor or operator inside its template, as far as needed to tell it from
--   the other kernels of the report; at most 64 characters
-- category: gemm, convolution, attention, normalization, softmax, elementwise, reduction, optimizer,
--   gather_scatter, sort, rng, copy, communication or other (analysis/kernels.toml)
CREATE VIEW kernel_names AS
WITH names AS (
    SELECT report_id, name, demangled, short_name
    FROM _timeline_names
    UNION ALL
    SELECT report_id, name, demangled, short_name
    FROM _profiled_names
),
judged AS (
    -- Many reports have the same kernels.
    SELECT name, demangled, kernel_category(name, demangled) AS category
    FROM (SELECT DISTINCT name, demangled FROM names)
)
SELECT
    n.report_id,
    n.name,
    n.demangled,
    n.short_name,
    j.category
FROM names AS n
JOIN judged AS j ON j.name = n.name AND j.demangled = n.demangled
ORDER BY n.report_id, n.demangled;
