-- Lines whose memory grows from step to step of a memory snapshot: at the ends of steps it never shrinks, and
-- it grows in the second half. The first step is not counted, because optimizers and caches allocate then.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- file VARCHAR: file of the innermost frame of the program itself; NULL if the stack has none
-- line BIGINT: line of this frame
-- function VARCHAR: function of this frame
-- library_file VARCHAR: file of the innermost frame of the library that this line called
-- library_line BIGINT: line of this frame
-- steps BIGINT: steps after the first one
-- grown_steps BIGINT: steps in which the memory of this line grew
-- grown_bytes BIGINT: growth after the first step, bytes
-- bytes_per_step DOUBLE: mean growth of a step, bytes
-- blocks BIGINT: allocations of this line that are in use at the end of the last step
-- example VARCHAR: frames of Python of one of them, innermost first
CREATE VIEW snapshot_growth AS
WITH step_ends AS (
    SELECT report_id, device, step, event, lag(event, 1, -2) OVER steps AS former
    FROM snapshot_steps
    WINDOW steps AS (PARTITION BY report_id, device ORDER BY step)
),
counted AS (
    SELECT report_id, device, max(step) AS steps
    FROM snapshot_steps
    GROUP BY report_id, device
    HAVING max(step) >= threshold('snapshot.least_steps')
),
lines AS (
    SELECT
        l.report_id, l.device, s.file, s.line, s.function, s.library_file, s.library_line, s.stack,
        l.bytes, l.allocation_id, l.end_event,
        coalesce(l.start_event, -1) AS start_event
    FROM _snapshot_lives AS l
    JOIN snapshot_stacks AS s ON s.report_id = l.report_id AND s.stack_id = l.stack_id
),
-- The change of each line in each step: what it allocated, less what it released.
changes AS (
    SELECT
        report_id, device, file, line, function, library_file, library_line, start_event AS event,
        bytes AS delta
    FROM lines
    UNION ALL
    SELECT report_id, device, file, line, function, library_file, library_line, end_event, -bytes
    FROM lines
    WHERE end_event IS NOT NULL
),
stepped AS (
    SELECT
        c.report_id, c.device, c.file, c.line, c.function, c.library_file, c.library_line, e.step,
        sum(c.delta)::BIGINT AS delta
    FROM changes AS c
    ASOF JOIN step_ends AS e ON e.report_id = c.report_id AND e.device = c.device AND e.event >= c.event
    GROUP BY ALL
),
grown AS (
    SELECT
        s.report_id, s.device, s.file, s.line, s.function, s.library_file, s.library_line,
        any_value(n.steps) AS steps,
        count(*) FILTER (s.delta > 0) AS grown_steps,
        sum(s.delta)::BIGINT AS grown_bytes
    FROM stepped AS s
    JOIN counted AS n ON n.report_id = s.report_id AND n.device = s.device
    WHERE s.step > 0
    GROUP BY ALL
    HAVING min(s.delta) >= 0 AND max(s.step) FILTER (s.delta > 0) > any_value(n.steps) / 2
        AND count(*) FILTER (s.delta > 0) >= threshold('snapshot.least_steps')
),
ends AS (
    SELECT report_id, device, max(event) AS event
    FROM snapshot_steps
    GROUP BY report_id, device
)
SELECT
    g.report_id,
    g.device,
    g.file,
    g.line,
    g.function,
    g.library_file,
    g.library_line,
    g.steps,
    g.grown_steps,
    g.grown_bytes,
    g.grown_bytes / g.steps AS bytes_per_step,
    count(*) AS blocks,
    arg_max(l.stack, l.allocation_id) AS example
FROM grown AS g
JOIN ends AS e ON e.report_id = g.report_id AND e.device = g.device
JOIN lines AS l
    ON l.report_id = g.report_id AND l.device = g.device
    AND l.file IS NOT DISTINCT FROM g.file AND l.line IS NOT DISTINCT FROM g.line
    AND l.function IS NOT DISTINCT FROM g.function
    AND l.library_file IS NOT DISTINCT FROM g.library_file
    AND l.library_line IS NOT DISTINCT FROM g.library_line
    AND l.start_event <= e.event AND (l.end_event IS NULL OR l.end_event > e.event)
GROUP BY ALL
ORDER BY
    g.report_id, g.device, g.grown_bytes DESC, g.file, g.line, g.library_file, g.library_line, g.function;
