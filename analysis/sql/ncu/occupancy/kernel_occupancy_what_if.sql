-- Values of each resource at which theoretical occupancy changes: the points of kernel_occupancy_curves at
-- which the number of warps that fit changes, and the value that the launch uses.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- resource VARCHAR: registers, shared_mem or block_size
-- value BIGINT: registers per thread, bytes of shared memory per block (including the shared memory reserved
--   by the driver), or threads per block
-- warps_per_sm BIGINT: number of warps that would fit on an SM with this value, and with larger values up to
--   that of the next row
-- occupancy_pct DOUBLE: theoretical occupancy, % of the warp slots
-- gain_pct DOUBLE: theoretical occupancy at this value minus that of the launch, percentage points
-- current BOOLEAN: whether the row is for the value that the launch uses
CREATE VIEW kernel_occupancy_what_if AS
WITH curves AS (
    SELECT *, lag(warps_per_sm) OVER (PARTITION BY report_id, launch_id, resource ORDER BY value) AS before
    FROM kernel_occupancy_curves
)
SELECT
    c.report_id,
    c.launch_id,
    c.resource,
    c.value,
    c.warps_per_sm,
    c.occupancy_pct,
    c.occupancy_pct - o.theoretical_occupancy_pct AS gain_pct,
    c.current
FROM curves AS c
JOIN kernel_occupancy AS o USING (report_id, launch_id)
WHERE c.current OR c.before IS DISTINCT FROM c.warps_per_sm
ORDER BY c.report_id, c.launch_id, c.resource, c.value;
