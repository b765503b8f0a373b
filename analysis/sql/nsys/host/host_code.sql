-- Code that each thread of the host executed during the capture, most time first, whether the GPU was busy or
-- not: lines of the program, or of libraries for stacks without code of the program. Waiting counts as well,
-- because stacks are recorded at regular times. See idle_code for the idle time of the GPU alone.
-- @materialize
--
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- tid BIGINT: thread id
-- source VARCHAR: origin of the stacks, as in host_samples
-- rank BIGINT: rank of the line in its thread; 1 is the most time
-- function VARCHAR: name of the function
-- file VARCHAR: source file, or library if the code is native
-- line BIGINT: line; NULL if not recorded
-- kind VARCHAR: owner of the code, as in host_frames
-- library_function VARCHAR: function that the line calls most of this time; NULL if it calls none
-- is_worker BOOLEAN: whether the thread is idle there, as a worker that waits for its next task
-- time_ns BIGINT: time in which the thread was at this line, or in functions that it called, ns
-- share_pct DOUBLE: time_ns as a percentage of the sampled time of the thread
-- samples BIGINT: number of samples; for stacks of py-spy, which merges equal ones, of intervals
CREATE VIEW host_code AS
WITH called AS (
    SELECT
        c.report_id, c.pid, c.tid, c.source, f.function, f.file, f.line, f.kind,
        b.function AS called, s.is_idle, count(*) AS samples, sum(c.end_ns - c.start_ns)::BIGINT AS ns
    FROM _host_cells AS c
    JOIN _stack_code AS s USING (report_id, stack_id)
    JOIN host_frames AS f ON f.report_id = c.report_id AND f.frame_id = s.frame_id
    LEFT JOIN host_frames AS b ON b.report_id = c.report_id AND b.frame_id = s.called_id
    GROUP BY ALL
),
lines AS (
    SELECT
        report_id, pid, tid, source, function, file, line, kind,
        arg_min_null(called, (-ns, called IS NOT NULL, called)) AS library_function,
        bool_and(is_idle) AS is_worker, sum(samples)::BIGINT AS samples, sum(ns)::BIGINT AS time_ns
    FROM called
    GROUP BY ALL
)
SELECT
    report_id,
    pid,
    tid,
    source,
    row_number() OVER (
        PARTITION BY report_id, pid, tid ORDER BY time_ns DESC, function, file, line, kind
    ) AS rank,
    function,
    file,
    line,
    kind,
    library_function,
    is_worker,
    time_ns,
    100.0 * time_ns / nullif(sum(time_ns) OVER (PARTITION BY report_id, pid, tid), 0) AS share_pct,
    samples
FROM lines
ORDER BY report_id, pid, tid, rank;
