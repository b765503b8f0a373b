-- Kernel launches that ncu profiled, by the configuration of a run that they belong to.
--
-- run_id VARCHAR: run
-- task_index BIGINT: configuration, counted from 0
-- label VARCHAR: parameters of the configuration as text
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, as in ncu_launches
-- kernel_name VARCHAR: function name of the kernel
-- duration_ns DOUBLE: duration under ncu, ns
-- longest BOOLEAN: true for the longest launch of the configuration, as in run_efficiency.kernel_name
CREATE VIEW run_kernels AS
WITH sources AS (
    SELECT run_id, task_index, label, unnest(reports) AS report_id
    FROM run_tasks
)
SELECT
    s.run_id,
    s.task_index,
    s.label,
    l.report_id,
    l.launch_id,
    l.kernel_name,
    l.duration_ns,
    row_number() OVER (
        PARTITION BY s.run_id, s.task_index ORDER BY l.duration_ns DESC NULLS LAST, l.report_id, l.launch_id
    ) = 1 AS longest
FROM sources AS s
JOIN ncu_launches AS l USING (report_id)
ORDER BY s.run_id, s.task_index, l.report_id, l.launch_id;
