-- Iterations of all loops on each GPU, with the time until the next iteration of the same run starts, ns;
-- NULL for the last iteration of a run. A row may combine several iterations (repeats).
CREATE VIEW _iteration_times AS
SELECT
    *,
    lead(start_ns) OVER (
        PARTITION BY report_id, pid, device, loop, run ORDER BY start_ns, step
    ) - start_ns AS distance_ns
FROM launch_steps;
