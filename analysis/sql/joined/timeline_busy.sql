-- What bounds a timeline's kernels according to its ncu reports: share of the kernel time for each bound of
-- kernel_bottleneck. This view refines the category `compute` of timeline_bottleneck: busy time may be
-- compute-bound, memory-bound or neither.
--
-- report_id VARCHAR: nsys report
-- bound VARCHAR: bound, or unmatched for kernels that ncu did not profile
-- time_ns BIGINT: sum of the kernel durations, ns
-- time_pct DOUBLE: share of the report's total kernel time, %
-- kernels BIGINT: number of distinct kernels (name, grid, block)
CREATE VIEW timeline_busy AS
SELECT
    report_id,
    coalesce(bound, 'unmatched') AS bound,
    sum(total_time_ns)::BIGINT AS time_ns,
    100.0 * sum(total_time_ns)
        / nullif(sum(sum(total_time_ns)) OVER (PARTITION BY report_id), 0) AS time_pct,
    count(*) AS kernels
FROM kernel_headroom
WHERE report_id IN (SELECT report_id FROM _report_pairs)
GROUP BY report_id, coalesce(bound, 'unmatched')
ORDER BY report_id, time_ns DESC, bound;
