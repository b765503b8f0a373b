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
        dur_ns
    FROM numbered
    WHERE device IS NOT DISTINCT FROM cuda_device AND NOT is_communication(name)
),
counted AS (
    SELECT report_id, count(*) FILTER (inside) AS window_launches
    FROM own
    GROUP BY report_id
),
-- Durations of a configuration repeat, so that there are far fewer than launches.
durations AS (
    SELECT
        report_id, filter_name, demangled, grid, block, smem, dur_ns,
        sum(dur_ns) FILTER (inside)::BIGINT AS inside_ns
    FROM own
    GROUP BY ALL
),
gains AS (
    SELECT
        * EXCLUDE (inside_ns),
        sum(inside_ns) OVER (
            PARTITION BY report_id, filter_name, demangled, grid, block, smem
            ORDER BY ln(greatest(dur_ns, 1))
            RANGE BETWEEN ln(threshold('plan.alike_times')) PRECEDING
                AND ln(threshold('plan.alike_times')) FOLLOWING
        )::BIGINT AS gain_ns
    FROM durations
)
SELECT
    o.*,
    c.window_launches,
    CASE WHEN o.inside THEN g.gain_ns END AS gain_ns,
    lag(o.place, 1, 0) OVER (
        PARTITION BY o.report_id, o.filter_name, o.demangled, o.grid, o.block, o.smem ORDER BY o.place
    ) AS earlier_place
FROM own AS o
JOIN counted AS c USING (report_id)
JOIN gains AS g
    ON g.report_id = o.report_id AND g.dur_ns = o.dur_ns
        AND g.filter_name IS NOT DISTINCT FROM o.filter_name
        AND g.demangled IS NOT DISTINCT FROM o.demangled
        AND g.grid IS NOT DISTINCT FROM o.grid
        AND g.block IS NOT DISTINCT FROM o.block
        AND g.smem IS NOT DISTINCT FROM o.smem;
