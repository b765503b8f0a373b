-- Loops whose iterations are the layers of one network, by the stacks of Python, with the reason: each
-- iteration calls a module of its own (Block_0, Block_1, ...), while one module is called throughout; or a
-- module does not return from the first iteration to the last, with nothing but pauses between them.
-- Iterations that end within a layer share its module with the next iteration.
-- @materialize
CREATE VIEW _module_loops AS
WITH iterations AS (
    SELECT report_id, pid, loop, step, host_start_ns, host_end_ns
    FROM launch_steps
    SEMI JOIN (FROM launch_loops WHERE role = 'step' AND evidence NOT LIKE '%optimizer%')
        USING (report_id, pid, loop)
),
modules AS (
    SELECT
        s.report_id,
        s.stack_id,
        substr(f.function, length('nn.Module: ') + 1) AS module,
        max(s.depth) AS depth
    FROM host_stacks AS s
    JOIN host_frames AS f USING (report_id, frame_id)
    SEMI JOIN iterations USING (report_id)
    WHERE starts_with(f.function, 'nn.Module: ')
    GROUP BY ALL
),
sampled AS (
    SELECT DISTINCT i.report_id, i.pid, i.loop, i.step, h.stack_id
    FROM iterations AS i
    JOIN host_samples AS h
        ON h.report_id = i.report_id
            AND h.pid = i.pid
            AND h.time_ns >= i.host_start_ns
            AND h.time_ns < i.host_end_ns
    SEMI JOIN modules AS m ON m.report_id = h.report_id AND m.stack_id = h.stack_id
),
called AS (
    SELECT
        report_id, pid, loop, module,
        regexp_replace(module, '_\d+$', '') AS class,
        count(DISTINCT step) AS steps,
        max(step) - min(step) AS apart,
        max(depth) AS depth
    FROM sampled
    JOIN modules USING (report_id, stack_id)
    GROUP BY report_id, pid, loop, module
),
lengths AS (SELECT report_id, pid, loop, count(*) AS steps FROM iterations GROUP BY report_id, pid, loop),
own AS (
    SELECT c.report_id, c.pid, c.loop, arg_max(c.class, (c.depth, c.class)) AS class
    FROM (
        SELECT report_id, pid, loop, class, count(*) AS modules, max(depth) AS depth
        FROM called
        GROUP BY report_id, pid, loop, class
        HAVING max(apart) <= 1
    ) AS c
    JOIN lengths AS n USING (report_id, pid, loop)
    JOIN (SELECT report_id, pid, loop, max(steps) AS steps FROM called GROUP BY report_id, pid, loop) AS w
        USING (report_id, pid, loop)
    WHERE c.modules >= threshold('timeline.loop_repeats')
        AND c.modules >= threshold('timeline.each_step') * n.steps
        AND w.steps >= threshold('timeline.each_step') * n.steps
    GROUP BY c.report_id, c.pid, c.loop
),
-- Stacks of each thread from the start of the first iteration to that of the last.
between AS (
    SELECT s.report_id, s.pid, s.loop, h.tid, h.stack_id, count(*) AS samples
    FROM (
        SELECT report_id, pid, loop, min(host_start_ns) AS start_ns, max(host_start_ns) AS end_ns
        FROM iterations
        SEMI JOIN (FROM launch_loops WHERE evidence = 'pause') USING (report_id, pid, loop)
        GROUP BY report_id, pid, loop
    ) AS s
    JOIN host_samples AS h
        ON h.report_id = s.report_id
            AND h.pid = s.pid
            AND h.time_ns >= s.start_ns
            AND h.time_ns < s.end_ns
    GROUP BY ALL
),
shown AS (
    SELECT b.report_id, b.pid, b.loop, b.tid, m.module, sum(b.samples) AS samples, max(m.depth) AS depth
    FROM between AS b
    JOIN modules AS m ON m.report_id = b.report_id AND m.stack_id = b.stack_id
    GROUP BY ALL
),
throughout AS (
    SELECT report_id, pid, loop, arg_max(module, (depth, module)) AS module
    FROM shown
    JOIN (
        SELECT report_id, pid, loop, tid, sum(samples) AS samples
        FROM between
        GROUP BY report_id, pid, loop, tid
    ) USING (report_id, pid, loop, tid, samples)
    GROUP BY report_id, pid, loop
)
SELECT report_id, pid, loop, concat('each iteration calls a module of its own: ', class) AS why
FROM own
UNION ALL
SELECT report_id, pid, loop, concat('the iterations are parts of one call of ', module)
FROM throughout
ANTI JOIN own USING (report_id, pid, loop);
