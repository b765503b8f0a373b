-- How much of each GPU's kernel time ncu has looked at: the kernels of the analyzed window (the steady
-- steps, where there are steps) that were profiled: launches of the name, grid and block of a profiled
-- one that take about as long.  One row per GPU of each timeline that has ncu reports.
--
-- report_id VARCHAR: nsys report
-- device BIGINT: physical GPU number
-- window_kind VARCHAR: steady, or whole where no repeating step was found
-- steps BIGINT: number of steps in the window; NULL for whole
-- kernel_time_ns BIGINT: sum of the durations of all kernels in the window, ns
-- configurations BIGINT: kernel configurations (name, grid, block), without communication
-- profiled_configurations BIGINT: how many of them were profiled
-- profiled_pct DOUBLE: share of the kernel time that was profiled, %
-- communication_pct DOUBLE: share of communication, which is not profiled, %
-- unprofiled_pct DOUBLE: share of the other kernels, %
-- otherwise_pct DOUBLE: share of those that were profiled with another grid, block or duration only, %
-- coverage_pct DOUBLE: share that was profiled of what could be, the kernel time without communication, %
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
