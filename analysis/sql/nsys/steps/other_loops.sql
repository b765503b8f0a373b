-- Loops of a process besides that of its steps: training beside generation, a second benchmark.  They are
-- found by the order of launches, so none is known of a process whose ranges name its steps.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process
-- period_launches BIGINT: launches in a repeat
-- repeats BIGINT: number of repeats, of all loops with that period
-- repeat_ns DOUBLE: median duration of a repeat, ns
-- time_ns BIGINT: time that they take, from start to end, ns
-- share_pct DOUBLE: that over the time from the first to the last operation of the GPU, %
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
