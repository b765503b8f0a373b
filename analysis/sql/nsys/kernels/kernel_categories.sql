-- Each GPU's kernel time during the steady steps (analysis_windows) by kernel category. Categories are
-- derived from kernel names. Categories without kernels are omitted, except `other`, which contains the
-- kernels that match no rule.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- category VARCHAR: gemm, convolution, attention, normalization, softmax, elementwise, reduction, optimizer,
--   gather_scatter, sort, rng, copy, communication or other (analysis/kernels.toml)
-- kernels BIGINT: number of distinct kernels by full name
-- launches BIGINT: number of executions
-- time_ns BIGINT: total duration, ns; overlapping time counts more than once
-- share_pct DOUBLE: percentage of the GPU's total kernel time; NULL if the total is 0
-- mean_ns DOUBLE: mean duration, ns; NULL if there are no executions
-- longest VARCHAR: short name of the kernel with the largest total time
-- longest_pct DOUBLE: percentage of the category's time in the kernel with the largest total time; NULL if
--   the time is 0
CREATE VIEW kernel_categories AS
WITH uses AS (
    SELECT g.report_id, g.device, n.category, n.short_name, u.launches, u.time_ns
    FROM _kernel_uses AS u
    JOIN _gpus AS g USING (track)
    JOIN kernel_names AS n ON n.report_id = g.report_id AND n.demangled = u.demangled
),
known AS (
    FROM uses
    UNION ALL
    SELECT DISTINCT report_id, device, 'other', NULL::VARCHAR, 0, 0
    FROM uses
),
sums AS (
    SELECT
        report_id,
        device,
        category,
        count(short_name) AS kernels,
        sum(launches)::BIGINT AS launches,
        sum(time_ns)::BIGINT AS time_ns,
        arg_max(short_name, (time_ns, short_name)) FILTER (short_name IS NOT NULL) AS longest,
        max(time_ns) AS longest_ns
    FROM known
    GROUP BY report_id, device, category
)
SELECT
    report_id,
    device,
    category,
    kernels,
    launches,
    time_ns,
    100.0 * time_ns / nullif(sum(time_ns) OVER (PARTITION BY report_id, device), 0) AS share_pct,
    time_ns / nullif(launches, 0) AS mean_ns,
    longest,
    100.0 * longest_ns / nullif(time_ns, 0) AS longest_pct
FROM sums
ORDER BY report_id, device, time_ns DESC, category;
