-- Share of each GPU's kernel time in the analyzed window (the steady steps, if there are steps) that ncu has
-- profiled. A launch counts as profiled if ncu profiled a launch with the same name, grid and block and a
-- similar duration. There is one row per GPU of each timeline that has ncu reports.
--
-- report_id VARCHAR: nsys report
-- device BIGINT: physical GPU number
-- window_kind VARCHAR: steady, or whole if no repeating step was found
-- steps BIGINT: number of steps in the window; NULL if the window does not consist of steps
-- kernel_time_ns BIGINT: sum of the durations of all kernels in the window, ns
-- configurations BIGINT: number of kernel configurations (name, grid, block), excluding communication
-- profiled_configurations BIGINT: number of profiled kernel configurations
-- profiled_pct DOUBLE: share of the kernel time that was profiled, %
-- communication_pct DOUBLE: share of the kernel time spent in communication kernels, which are not profiled,
--   %
-- unprofiled_pct DOUBLE: share of the kernel time spent in unprofiled kernels other than communication, %
-- otherwise_pct DOUBLE: share of the kernel time spent in kernels that ncu profiled only with a different
--   grid, block or duration, %
-- coverage_pct DOUBLE: profiled share of the kernel time, excluding communication, %
CREATE VIEW step_coverage AS
WITH sums AS (
    SELECT
        s.report_id,
        device,
        window_kind,
        steps,
        sum(time_ns) AS all_ns,
        count(DISTINCT (demangled, grid, block)) FILTER (NOT communication) AS configurations,
        count(DISTINCT (demangled, grid, block))
            FILTER (NOT communication AND ncu_launches > 0) AS profiled_configurations,
        coalesce(sum(time_ns) FILTER (NOT communication AND ncu_launches > 0), 0) AS profiled_ns,
        coalesce(sum(time_ns) FILTER (communication), 0) AS communication_ns,
        coalesce(sum(time_ns) FILTER (p.key IS NOT NULL), 0) AS otherwise_ns
    FROM _step_kernels AS s
    LEFT JOIN (SELECT DISTINCT report_id, key FROM _profiled_kernels) AS p
        ON s.ncu_launches IS NULL AND p.report_id = s.report_id AND p.key = kernel_key(s.demangled)
    GROUP BY s.report_id, device, window_kind, steps
)
SELECT
    report_id,
    device,
    window_kind,
    steps,
    all_ns::BIGINT AS kernel_time_ns,
    configurations,
    profiled_configurations,
    100.0 * profiled_ns / nullif(all_ns, 0) AS profiled_pct,
    100.0 * communication_ns / nullif(all_ns, 0) AS communication_pct,
    100.0 * (all_ns - profiled_ns - communication_ns) / nullif(all_ns, 0) AS unprofiled_pct,
    100.0 * otherwise_ns / nullif(all_ns, 0) AS otherwise_pct,
    100.0 * profiled_ns / nullif(all_ns - communication_ns, 0) AS coverage_pct
FROM sums
ORDER BY report_id, device;
