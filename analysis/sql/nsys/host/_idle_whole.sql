-- Idle time of each GPU in the analyzed windows by cause and whole stack, all steps together; stacks are
-- numbered.
-- @materialize
CREATE VIEW _idle_whole AS
SELECT
    report_id, device, cause, stack_id, worker_stack_id, reason, sum(time_ns)::BIGINT AS ns,
    -- Rows of an estimate share their samples.
    sum(samples)::BIGINT + max(in_all) AS samples,
    row_number() OVER (ORDER BY report_id, device, cause, stack_id, worker_stack_id, reason) AS number
FROM idle_stacks
GROUP BY report_id, device, cause, stack_id, worker_stack_id, reason;
