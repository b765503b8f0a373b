-- Idle time of each GPU in the analyzed windows by the code that the host executed meanwhile, most time
-- first: the lines of the program, and the functions and lines of all code. Idle time after a wait for the
-- GPU belongs to the code that waited. The times self_ns of a level add up to the idle time of the GPU. See
-- idle_stacks for single steps and whole stacks.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- level VARCHAR: user (innermost line of the program; without one, of the outermost library), function (the
--   function that was being executed) or line (the line that was being executed)
-- rank BIGINT: rank of the code by its self_ns in all causes; 1 is the most, and time without a stack is last
-- function VARCHAR: name of the function; NULL for idle time without a stack
-- file VARCHAR: source file
-- line BIGINT: line; NULL for functions, or if not recorded
-- kind VARCHAR: owner of the code, as in host_frames
-- library_function VARCHAR: function that the line calls most of this time, with its file; for level user
--   only
-- via VARCHAR: worker process if this process waits for a worker that executes the code; else NULL
-- cause VARCHAR: cause of the idle time, as a category of gpu_time_budget
-- self_ns BIGINT: idle time in which this was the innermost code of the level, ns
-- total_ns BIGINT: idle time in which the code was in the stack, ns; recursion counts once
-- self_pct DOUBLE: self_ns as a percentage of the idle time
-- total_pct DOUBLE: total_ns as a percentage of the idle time
-- code_pct DOUBLE: percentage of the idle time for all causes of this code
-- low_pct DOUBLE: lower end of the 95 % confidence interval of code_pct; NULL for time that was not sampled,
--   and for traced stacks, which are exact
-- high_pct DOUBLE: upper end of this interval
-- samples BIGINT: samples that self_ns rests on
-- reason VARCHAR: reason why there is no stack, as in idle_stacks; NULL if there is one
CREATE VIEW idle_code AS
WITH leaves AS (
    SELECT * EXCLUDE (depth) FROM _idle_frames
    QUALIFY row_number() OVER (PARTITION BY number ORDER BY depth) = 1
),
codes AS (
    SELECT
        k.number, 'user' AS level, f.function, f.file, f.line, f.kind,
        b.function || coalesce(' (' || short_source(b.file) || ')', '') AS called,
        if(k.worker_stack_id IS NULL, NULL, 'worker process') AS via
    FROM _idle_whole AS k
    JOIN _stack_code AS c
        ON c.report_id = k.report_id AND c.stack_id = coalesce(k.worker_stack_id, k.stack_id)
    JOIN host_frames AS f ON f.report_id = k.report_id AND f.frame_id = c.frame_id
    LEFT JOIN host_frames AS b ON b.report_id = k.report_id AND b.frame_id = c.called_id
    UNION ALL
    SELECT number, 'function', function, file, NULL, kind, NULL, via FROM leaves
    UNION ALL
    SELECT number, 'line', function, file, line, kind, NULL, via FROM leaves
),
missing AS (
    SELECT number, unnest(['user', 'function', 'line']) AS level
    FROM _idle_whole
    WHERE stack_id IS NULL
),
timed AS (
    SELECT
        c.*, k.report_id, k.device, k.cause, k.reason, k.ns, k.samples,
        sum(k.ns) OVER (
            PARTITION BY
                k.report_id, k.device, c.level, c.function, c.file, c.line, c.kind, c.via, k.cause, c.called
        ) AS called_ns
    FROM (FROM codes UNION ALL BY NAME FROM missing) AS c
    JOIN _idle_whole AS k USING (number)
),
selves AS (
    SELECT
        report_id, device, level, function, file, line, kind, via, cause, reason,
        -- What a line calls for most of its time; NULL if this is the line itself.
        arg_min_null(called, (-called_ns, called IS NOT NULL, called)) AS called,
        sum(ns)::BIGINT AS ns, sum(samples)::BIGINT AS samples
    FROM timed
    GROUP BY ALL
),
placed AS (
    SELECT DISTINCT number, unnest(
        if(kind = 'user', ['user', 'function', 'line'], ['function', 'line'])
    ) AS level, function, file, if(level = 'function', NULL, line) AS line, kind, via
    FROM _idle_frames
    UNION
    SELECT number, level, function, file, line, kind, via FROM codes
),
totals AS (
    SELECT
        k.report_id, k.device, p.level, p.function, p.file, p.line, p.kind, p.via, k.cause,
        sum(k.ns)::BIGINT AS ns
    FROM placed AS p
    JOIN _idle_whole AS k USING (number)
    GROUP BY ALL
),
joined AS (
    SELECT
        coalesce(s.report_id, t.report_id) AS report_id, coalesce(s.device, t.device) AS device,
        coalesce(s.level, t.level) AS level, coalesce(s.function, t.function) AS function,
        coalesce(s.file, t.file) AS file, coalesce(s.line, t.line) AS line, coalesce(s.kind, t.kind) AS kind,
        coalesce(s.via, t.via) AS via, coalesce(s.cause, t.cause) AS cause, s.called, s.reason,
        coalesce(s.ns, 0) AS self_ns, coalesce(t.ns, s.ns) AS total_ns, coalesce(s.samples, 0) AS samples
    FROM selves AS s
    FULL JOIN totals AS t
        ON t.report_id = s.report_id AND t.device IS NOT DISTINCT FROM s.device AND t.level = s.level
            AND t.function = s.function AND t.file IS NOT DISTINCT FROM s.file
            AND t.line IS NOT DISTINCT FROM s.line AND t.kind = s.kind
            AND t.via IS NOT DISTINCT FROM s.via AND t.cause = s.cause
),
-- Traced stacks are exact.
traced AS (
    SELECT report_id
    FROM _host_cells
    GROUP BY report_id
    HAVING bool_and(is_traced(source))
),
whole AS (
    SELECT
        *,
        function IS NOT NULL AND report_id NOT IN (FROM traced) AS is_estimate,
        sum(self_ns) OVER code AS code_ns,
        sum(self_ns) OVER of_level AS idle_ns,
        sum(samples) OVER of_level AS all_samples
    FROM joined
    WINDOW
        code AS (PARTITION BY report_id, device, level, function, file, line, kind, via, reason),
        of_level AS (PARTITION BY report_id, device, level)
)
SELECT
    report_id,
    device,
    level,
    dense_rank() OVER (
        PARTITION BY report_id, device, level
        ORDER BY function IS NULL, code_ns DESC, function, file, line, kind, via, reason
    ) AS rank,
    function,
    file,
    line,
    kind,
    called AS library_function,
    via,
    cause,
    self_ns,
    total_ns,
    100.0 * self_ns / idle_ns AS self_pct,
    100.0 * total_ns / idle_ns AS total_pct,
    100.0 * code_ns / idle_ns AS code_pct,
    CASE WHEN is_estimate THEN share_interval(code_ns / idle_ns, all_samples)[1] END AS low_pct,
    CASE WHEN is_estimate THEN share_interval(code_ns / idle_ns, all_samples)[2] END AS high_pct,
    samples,
    reason
FROM whole
ORDER BY report_id, device, level, rank, self_ns DESC, cause;
