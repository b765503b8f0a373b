-- Smallest reduction of registers or shared memory that raises theoretical occupancy, from perfpipe's
-- occupancy calculator.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- registers_step BIGINT: largest number of registers per thread at which more warps fit on an SM; NULL if
--   fewer registers do not help
-- registers_occupancy_pct DOUBLE: theoretical occupancy at registers_step, %
-- smem_step BIGINT: largest amount of shared memory per block at which more warps fit on an SM, bytes; NULL
--   if less shared memory does not help
-- smem_occupancy_pct DOUBLE: theoretical occupancy at smem_step, %
-- next_step VARCHAR: both reductions as text, with the occupancy that each one allows; NULL if neither helps
CREATE VIEW kernel_occupancy_steps AS
WITH better AS (
    SELECT c.report_id, c.launch_id, c.resource, c.value, c.occupancy_pct
    FROM kernel_occupancy_curves AS c
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    WHERE c.occupancy_pct > o.theoretical_occupancy_pct
        AND (
            (c.resource = 'registers' AND c.value < o.registers)
                OR (c.resource = 'shared_mem' AND c.value < o.smem_allocated)
        )
),
smallest AS (
    SELECT
        report_id,
        launch_id,
        max(value) FILTER (WHERE resource = 'registers') AS registers_step,
        arg_max(occupancy_pct, value) FILTER (WHERE resource = 'registers') AS registers_occupancy_pct,
        max(value) FILTER (WHERE resource = 'shared_mem') AS smem_step,
        arg_max(occupancy_pct, value) FILTER (WHERE resource = 'shared_mem') AS smem_occupancy_pct
    FROM better
    GROUP BY report_id, launch_id
)
SELECT
    l.report_id,
    l.launch_id,
    s.registers_step,
    s.registers_occupancy_pct,
    s.smem_step,
    s.smem_occupancy_pct,
    nullif(concat_ws('; ',
        CASE
            WHEN s.registers_step IS NOT NULL
                THEN printf(
                    '%.0f %% with %d registers per thread', s.registers_occupancy_pct, s.registers_step
                )
        END,
        CASE
            WHEN s.smem_step IS NOT NULL
                THEN printf(
                    '%.0f %% with %.0f KiB of shared memory', s.smem_occupancy_pct, s.smem_step / 1024
                )
        END
    ), '') AS next_step
FROM ncu_launches AS l
LEFT JOIN smallest AS s USING (report_id, launch_id)
ORDER BY l.report_id, l.launch_id;
