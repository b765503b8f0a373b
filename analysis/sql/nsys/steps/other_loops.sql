-- Loops of a process in addition to the loop of its steps, such as training next to generation, or a second
-- benchmark. They are detected from the sequence of launches, so processes whose ranges name the steps have
-- no rows.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- period_launches BIGINT: number of launches per iteration
-- repeats BIGINT: number of iterations, over all loops with this period
-- repeat_ns DOUBLE: median duration of an iteration, ns
-- time_ns BIGINT: total duration of the iterations, ns
-- share_pct DOUBLE: share of the time from the first to the last operation of the GPU, %
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
