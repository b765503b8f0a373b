-- Loops of each process on each GPU, as a tree: epochs, steps, micro-batches, tokens, layers. Loops come from
-- the sequence of launches, and need no annotation. If ranges mark the steps, the ranges are a row too.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- loop BIGINT: number of the loop within the process, from 1, as for --step; 0 for ranges that mark steps
-- parent BIGINT: number of the loop that contains this loop; NULL for outermost loops
-- level BIGINT: depth of the loop, 1 for outermost loops
-- source VARCHAR: source of the loop: period (its launches repeat at a fixed distance), symbols (some of its
--   kernels alternate, so its iterations may vary), or the ranges: step range, NVTX or ProfilerStep
-- unit VARCHAR: name of one iteration: step, batch (contains tokens), token (is chosen and read back, without
--   input from the host), update (of one of several optimizers in a step), iteration (a unit of work of
--   unknown kind) or repeat (layers, or trials of kernels)
-- iterations BIGINT: number of iterations
-- launches DOUBLE: median number of kernel and graph launches per iteration; NULL for ranges
-- variable BOOLEAN: whether iterations differ in the number of inner iterations; NULL for ranges
-- fewest BIGINT: smallest number of iterations in one iteration of the parent; NULL for outermost loops
-- usual DOUBLE: median number of iterations in one iteration of the parent; for outermost loops, mean number
--   in a step that ranges mark, NULL without
-- most BIGINT: largest number of iterations in one iteration of the parent; NULL for outermost loops
-- median_ns DOUBLE: median time from one iteration's start to the next iteration's start on the GPU, ns
-- start_ns BIGINT: start of the first operation of the loop, ns
-- end_ns BIGINT: end of the last operation of the loop, ns
-- share_pct DOUBLE: percentage of the process's GPU time after start-up in the iterations; NULL for ranges
-- role VARCHAR: step, outer (contains the steps), inner (unit of work within a step), layer (repeats within
--   a step without a copy, an optimizer or a pause, or the stacks of Python show that one call of a module
--   contains the iterations), trial (an autotuner tries kernels) or other
-- evidence VARCHAR: what shows that one iteration is a unit of work: input (a copy from the host), readback
--   (a copy to the host), optimizer, sampling (a token is chosen), graph (CUDA graph), pause (of the host or
--   the GPU between iterations) or count (more iterations than a network has layers, or more launches than
--   a layer has); NULL if nothing shows this
-- why VARCHAR: why the loop has this role
CREATE VIEW loops AS
WITH timed AS (
    SELECT
        report_id, pid, device, loop,
        median(coalesce(distance_ns, end_ns - start_ns) / repeats) AS median_ns,
        min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM _iteration_times
    GROUP BY report_id, pid, device, loop
),
named AS (
    SELECT
        *,
        evidence LIKE '%readback%' AND evidence LIKE '%sampling%' AND evidence NOT LIKE '%input%' AS tokens
    FROM _loops
),
marked AS (
    SELECT s.report_id, s.pid, k.cuda_device AS device, s.start_ns, s.end_ns
    FROM _process_steps AS s
    JOIN _tracks AS k ON k.track = s.track AND k.pid = s.pid
    WHERE s.source != 'period'
),
in_steps AS (
    SELECT i.report_id, i.pid, i.loop, sum(i.repeats) / any_value(n.steps) AS usual
    FROM launch_steps AS i
    ASOF JOIN marked AS m
        ON m.report_id = i.report_id AND m.pid = i.pid AND m.device = i.device
            AND m.start_ns <= i.start_ns
    JOIN (SELECT report_id, pid, device, count(*) AS steps FROM marked GROUP BY ALL) AS n
        ON n.report_id = i.report_id AND n.pid = i.pid AND n.device = i.device
    WHERE i.start_ns < m.end_ns
    GROUP BY i.report_id, i.pid, i.loop
),
batches AS (
    SELECT DISTINCT l.report_id, l.pid, l.loop
    FROM named AS l
    JOIN named AS i ON i.report_id = l.report_id AND i.pid = l.pid AND i.parent = l.loop
    WHERE i.tokens AND i.iterations >= 2 * l.iterations
)
SELECT
    g.report_id,
    g.device,
    l.pid AS process_id,
    l.loop,
    l.parent,
    l.level,
    l.source,
    CASE
        WHEN l.role IN ('layer', 'trial') THEN 'repeat'
        WHEN b.loop IS NOT NULL THEN 'batch'
        WHEN l.evidence LIKE '%optimizer%' THEN if(l.role = 'inner', 'update', 'step')
        WHEN l.tokens THEN 'token'
        WHEN l.role = 'step' THEN 'step'
        ELSE 'iteration'
    END AS unit,
    l.iterations,
    l.launches,
    l.variable = 1 AS variable,
    l.fewest,
    if(l.parent IS NULL, n.usual, l.usual) AS usual,
    l.most,
    t.median_ns,
    t.start_ns,
    t.end_ns,
    100 * l.share AS share_pct,
    l.role,
    l.evidence,
    l.why
FROM named AS l
JOIN timed AS t USING (report_id, pid, loop)
JOIN _tracks AS k
    ON k.report_id = t.report_id AND k.pid = t.pid AND k.cuda_device IS NOT DISTINCT FROM t.device
JOIN _gpus AS g USING (track)
LEFT JOIN batches AS b USING (report_id, pid, loop)
LEFT JOIN in_steps AS n USING (report_id, pid, loop)
UNION ALL
SELECT
    g.report_id,
    g.device,
    s.pid,
    0,
    NULL,
    1,
    s.source,
    'step',
    count(*),
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    median(s.end_ns - s.start_ns),
    min(s.start_ns),
    max(s.end_ns),
    NULL,
    'step',
    NULL,
    if(s.source = 'step range', 'named by --step-range', 'the program marks its steps')
FROM _process_steps AS s
JOIN _gpus AS g USING (track)
WHERE s.source != 'period'
GROUP BY g.report_id, g.device, s.pid, s.source
ORDER BY ALL;
