-- What ncu saw of the kernels of each configuration of a run.
CREATE VIEW _task_kernels AS
WITH sources AS (
    SELECT run_id, task_index, unnest(reports) AS report_id
    FROM run_tasks
)
SELECT
    t.run_id,
    t.task_index,
    of_longest(l.kernel_name, l.duration_ns, l.report_id, l.launch_id) AS kernel_name,
    of_longest(b.bound, l.duration_ns, l.report_id, l.launch_id) AS bound,
    of_longest(b.subclass, l.duration_ns, l.report_id, l.launch_id) AS subclass,
    of_longest(o.registers, l.duration_ns, l.report_id, l.launch_id) AS registers,
    of_longest(o.smem_allocated, l.duration_ns, l.report_id, l.launch_id) AS smem_per_block,
    CASE WHEN count(f.flop) = count(*) THEN ordered_sum(f.flop) END
        / nullif(ordered_sum(l.duration_ns) / 1e9, 0) AS hardware_flop_per_s,
    max(f.reason) AS hfu_reason,
    time_weighted(m.dram_bytes_per_s, l.duration_ns) AS actual_bytes_per_s,
    max(w.l2_cache_bytes) AS l2_cache_bytes,
    max(r.peak_bytes_per_s) AS l2_bytes_per_s
FROM sources AS t
JOIN ncu_launches AS l USING (report_id)
JOIN kernel_bottleneck AS b USING (report_id, launch_id)
JOIN kernel_occupancy AS o USING (report_id, launch_id)
JOIN _launch_flops AS f USING (report_id, launch_id)
JOIN kernel_memory AS m USING (report_id, launch_id)
JOIN kernel_metrics AS w USING (report_id, launch_id)
LEFT JOIN _kernel_traffic AS r ON r.report_id = l.report_id AND r.launch_id = l.launch_id AND r.level = 'l2'
GROUP BY t.run_id, t.task_index;
