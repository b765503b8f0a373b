-- Idle time of each GPU in the analyzed windows by the code that the host executed meanwhile, all causes
-- together, most time first. The times of a level add up to the idle time of the GPU. See idle_code for
-- single causes, and idle_tree for the stacks.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- level VARCHAR: user, function or line, as in idle_code
-- rank BIGINT: rank of the code by its self_ns; 1 is the most, and time without a stack is last
-- function VARCHAR: name of the function; NULL for idle time without a stack
-- file VARCHAR: source file
-- line BIGINT: line; NULL for functions, or if not recorded
-- kind VARCHAR: owner of the code, as in host_frames
-- library_function VARCHAR: function that the line calls most of this time, with its file; for level user
--   only
-- via VARCHAR: worker process if this process waits for a worker that executes the code; else NULL
-- cause VARCHAR: cause of most of this idle time, as a category of gpu_time_budget
-- self_ns BIGINT: idle time in which this was the innermost code of the level, ns
-- step_ns DOUBLE: self_ns per analyzed step, ns; NULL if there are no steps
-- share_pct DOUBLE: self_ns as a percentage of the idle time
-- low_pct DOUBLE: lower end of the 95 % confidence interval of share_pct; NULL for time that was not sampled
-- high_pct DOUBLE: upper end of this interval
-- samples BIGINT: samples that self_ns rests on
-- reason VARCHAR: reason why there is no stack, as in idle_stacks; NULL if there is one
CREATE VIEW idle_hotspots AS
SELECT
    c.report_id,
    c.device,
    c.level,
    c.rank,
    c.function,
    c.file,
    c.line,
    c.kind,
    arg_max_null(c.library_function, (c.self_ns, c.cause)) AS library_function,
    c.via,
    arg_max(c.cause, (c.self_ns, c.cause)) AS cause,
    sum(c.self_ns)::BIGINT AS self_ns,
    sum(c.self_ns) / any_value(w.steps) AS step_ns,
    any_value(c.code_pct) AS share_pct,
    any_value(c.low_pct) AS low_pct,
    any_value(c.high_pct) AS high_pct,
    sum(c.samples)::BIGINT AS samples,
    c.reason
FROM idle_code AS c
LEFT JOIN analysis_windows AS w
    ON w.report_id = c.report_id AND w.device IS NOT DISTINCT FROM c.device
GROUP BY c.report_id, c.device, c.level, c.rank, c.function, c.file, c.line, c.kind, c.via, c.reason
HAVING sum(c.self_ns) > 0
ORDER BY c.report_id, c.device, c.level, c.rank;
