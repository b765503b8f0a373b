-- A process's other loops besides its training or inference steps, such as generation alongside training, or
-- a second benchmark. They are detected from the sequence of launches, so a process that marks its steps with
-- ranges has no rows.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- period_launches BIGINT: number of launches per iteration
-- repeats BIGINT: number of iterations, summed over all loops with this period
-- repeat_ns DOUBLE: median duration of an iteration, ns
-- time_ns BIGINT: total duration of the iterations, ns
-- share_pct DOUBLE: percentage of the time from the GPU's first to its last operation
CREATE VIEW other_loops AS
SELECT
    g.report_id,
    g.device,
    s.pid AS process_id,
    s.period AS period_launches,
    sum(s.repeats)::BIGINT AS repeats,
    median((s.end_ns - s.start_ns) / s.repeats) AS repeat_ns,
    sum(s.end_ns - s.start_ns)::BIGINT AS time_ns,
    100.0 * sum(s.end_ns - s.start_ns) / nullif(any_value(p.end_ns - p.start_ns), 0) AS share_pct
FROM _process_steps AS s
JOIN _gpus AS g USING (track)
JOIN _spans AS p USING (track)
WHERE NOT s.main
GROUP BY g.report_id, g.device, s.pid, s.period
ORDER BY g.report_id, g.device, s.pid, time_ns DESC, s.period;
