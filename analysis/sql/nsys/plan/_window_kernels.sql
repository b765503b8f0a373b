-- Kernel configurations of each process and GPU: launches before the window, launches and time in it, and the
-- start of the first launch in or after it. `config` numbers the configurations that ncu distinguishes;
-- `flush` marks kernels with which a benchmark flushes the L2 cache.
-- @materialize
CREATE VIEW _window_kernels AS
WITH sums AS (
    SELECT
        k.report_id,
        t.device,
        w.kind AS window_kind,
        w.start_ns AS window_start_ns,
        w.end_ns AS window_end_ns,
        w.steps,
        k.pid,
        k.device AS cuda_device,
        k.name,
        k.demangled,
        k.mangled,
        k.config,
        k.grid_x,
        k.grid_y,
        k.grid_z,
        k.block_x,
        k.block_y,
        k.block_z,
        k.static_smem + k.dynamic_smem AS smem,
        count(*) FILTER (k.start_ns < w.start_ns) AS before,
        count(*) FILTER (k.start_ns >= w.start_ns AND k.start_ns < w.end_ns) AS launches,
        coalesce(
            sum(k.dur_ns) FILTER (k.start_ns >= w.start_ns AND k.start_ns < w.end_ns), 0
        )::BIGINT AS time_ns,
        min(k.start_ns) FILTER (k.start_ns >= w.start_ns) AS first_ns
    FROM _configured_kernels AS k
    JOIN _tracks AS t
        ON t.report_id = k.report_id
            AND t.pid IS NOT DISTINCT FROM k.pid
            AND t.cuda_device IS NOT DISTINCT FROM k.device
    JOIN analysis_windows AS w ON w.report_id = t.report_id AND w.device IS NOT DISTINCT FROM t.device
    GROUP BY ALL
)
SELECT
    * EXCLUDE (grid_x, grid_y, grid_z, block_x, block_y, block_z),
    concat_ws(',', grid_x, grid_y, grid_z) AS grid,
    concat_ws(',', block_x, block_y, block_z) AS block,
    coalesce(mangled, name) AS filter_name,
    is_communication(name, coalesce(demangled, name)) AS communication,
    (report_id, device, coalesce(demangled, name)) IN (
        SELECT (report_id, device, demangled) FROM _flush_kernels
    ) AS flush
FROM sums;
