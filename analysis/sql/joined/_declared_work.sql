-- Declared work of each launch: from 'perfpipe work', or from the workload file if an iteration consists of
-- that launch alone. This is the case if ncu profiled no other kernel and the launch executes the FLOPs of an
-- iteration.
CREATE VIEW _declared_work AS
WITH alone AS (
    SELECT report_id
    FROM ncu_launches
    GROUP BY report_id
    HAVING count(DISTINCT (kernel_demangled, grid_x, grid_y, grid_z, block_x, block_y, block_z)) = 1
),
tasks AS (
    SELECT unnest(reports) AS report_id, flops AS flop, bytes
    FROM run_tasks
),
by_task AS (
    SELECT f.report_id, f.launch_id, any_value(t.flop) AS flop, any_value(t.bytes) AS bytes
    FROM kernel_features AS f
    JOIN alone USING (report_id)
    JOIN tasks AS t USING (report_id)
    WHERE f.flop >= threshold('bytes.same_flop_share') * t.flop
    GROUP BY f.report_id, f.launch_id
    HAVING count(DISTINCT t.flop) = 1
)
SELECT
    report_id,
    launch_id,
    coalesce(w.flop, t.flop) AS flop,
    coalesce(w.bytes, t.bytes) AS bytes
FROM _launch_work AS w
FULL JOIN by_task AS t USING (report_id, launch_id);
