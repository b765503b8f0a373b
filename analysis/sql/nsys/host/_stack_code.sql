-- The code that each stack stands for: the innermost frame of the user, and the frame that it calls, without
-- wrappers of calls. A stack without code of the user belongs to the innermost frame of its outermost
-- library. `awaits` is the kind of worker processes that the thread waits for, `works_for` the kind of a
-- worker.
-- @materialize
CREATE VIEW _stack_code AS
WITH framed AS (
    SELECT s.report_id, s.stack_id, s.depth, s.frame_id, f.kind, f.package, f.function, f.file
    FROM host_stacks AS s
    JOIN host_frames AS f USING (report_id, frame_id)
),
outermost AS (
    SELECT
        report_id,
        stack_id,
        -- What could not be resolved, and what PyTorch calls for each operator, says nothing if it has a
        -- caller.
        coalesce(
            min(depth) FILTER (
                kind = 'user' AND NOT starts_with(function, '[unresolved]') AND NOT is_hook(function)
            ),
            min(depth) FILTER (kind = 'user')
        ) AS user_depth,
        arg_max(package, depth) FILTER (
            kind = 'library' AND NOT is_plumbing(file) AND NOT is_wrapper(function)
        ) AS package,
        -- The most specific kind: a loader uses queues of multiprocessing.
        min(awaits(file, function)) AS awaits,
        min(works_for(file, function)) AS works_for,
        -- A thread or worker that waits for its next task does not delay anything.
        bool_or(is_idle_worker(file, function)) AS is_idle
    FROM framed
    GROUP BY report_id, stack_id
),
owned AS (
    SELECT
        o.report_id, o.stack_id, o.awaits, o.works_for, o.is_idle, o.user_depth IS NOT NULL AS is_user,
        coalesce(o.user_depth, min(f.depth) FILTER (f.package = o.package), min(f.depth)) AS depth
    FROM outermost AS o
    JOIN framed AS f USING (report_id, stack_id)
    GROUP BY o.report_id, o.stack_id, o.awaits, o.works_for, o.is_idle, o.user_depth
),
called AS (
    SELECT o.report_id, o.stack_id, arg_max(f.frame_id, f.depth) AS frame_id
    FROM owned AS o
    JOIN framed AS f USING (report_id, stack_id)
    WHERE f.depth < o.depth AND NOT is_wrapper(f.function)
    GROUP BY ALL
)
SELECT
    o.report_id, o.stack_id, o.awaits, o.works_for, o.is_idle, o.is_user,
    f.frame_id, c.frame_id AS called_id
FROM owned AS o
JOIN framed AS f USING (report_id, stack_id, depth)
LEFT JOIN called AS c USING (report_id, stack_id);
