-- Launches of the process to profile from the analyzed window's start on, on its GPU and without
-- communication, numbered as ncu counts them: `place` is the number among all that the process launches from
-- there on.  `gain_ns` is what a profile of the launch stands for: the time of those launches of the same
-- configuration in the window that take about as long, since a kernel may do quite different work with
-- the same grid (persistent kernels always have the same).  ncu takes the first that it sees of each.
-- @materialize
CREATE VIEW _plan_launches AS
WITH windows AS (
    SELECT
        p.report_id,
        p.pid,
        p.cuda_device,
        w.start_ns AS window_start_ns,
        w.end_ns AS window_end_ns,
        w.steps
    FROM _profiled_process AS p
    JOIN analysis_windows AS w
        ON w.report_id = p.report_id AND w.device IS NOT DISTINCT FROM p.device
),
-- Launches are counted by process, whatever GPU they are for.
numbered AS (
    SELECT
        k.*,
        w.* EXCLUDE (report_id, pid),
        row_number() OVER (
            PARTITION BY k.report_id ORDER BY k.start_ns, k.device, k.stream, k.name, k.end_ns
        ) AS place
    FROM nsys_kernels AS k
    JOIN windows AS w ON w.report_id = k.report_id AND w.pid IS NOT DISTINCT FROM k.pid
    WHERE k.start_ns >= w.window_start_ns
),
own AS (
    SELECT
        report_id,
        place,
        steps,
        coalesce(mangled, name) AS filter_name,
        demangled,
        concat_ws(',', grid_x, grid_y, grid_z) AS grid,
        concat_ws(',', block_x, block_y, block_z) AS block,
        static_smem + dynamic_smem AS smem,
        start_ns,
        end_ns,
        start_ns < window_end_ns AS inside,
        count(*) FILTER (start_ns < window_end_ns) OVER (PARTITION BY report_id) AS window_launches,
        dur_ns,
        ln(greatest(dur_ns, 1)) AS log_ns
    FROM numbered
    WHERE device IS NOT DISTINCT FROM cuda_device AND NOT is_communication(name)
)
SELECT
    * EXCLUDE (log_ns),
    CASE WHEN inside THEN sum(if(inside, dur_ns, 0)) OVER (
        PARTITION BY report_id, filter_name, demangled, grid, block, smem
        ORDER BY log_ns
        RANGE BETWEEN ln(threshold('plan.alike_times')) PRECEDING
            AND ln(threshold('plan.alike_times')) FOLLOWING
    )::BIGINT END AS gain_ns,
    lag(place, 1, 0) OVER (
        PARTITION BY report_id, filter_name, demangled, grid, block, smem ORDER BY place
    ) AS earlier_place
FROM own;
