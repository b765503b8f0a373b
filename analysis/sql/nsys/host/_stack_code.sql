-- The code that each stack stands for: the innermost frame of the user, and the frame that it calls, without
-- wrappers of calls.
-- A stack without code of the user belongs to the innermost frame of its outermost library. `fetches` says
-- whether the thread waits in this stack for a process that works for it.
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
        min(depth) FILTER (kind = 'user') AS user_depth,
        arg_max(package, depth) FILTER (
            kind = 'library' AND NOT is_plumbing(file) AND NOT is_wrapper(function)
        ) AS package,
        -- Until the result arrives, the thread is in the calls that fetch it.
        bool_or(is_fetching(file, function)) AS fetches,
        -- A worker that waits for its next task does not delay anything.
        bool_or(is_idle_worker(file, function)) AS is_idle,
        bool_or(function = '_bootstrap' AND contains(file, 'multiprocessing/process.py')) AS in_worker
    FROM framed
    GROUP BY report_id, stack_id
),
owned AS (
    SELECT
        o.report_id, o.stack_id, o.fetches, o.is_idle, o.in_worker, o.user_depth IS NOT NULL AS is_user,
        coalesce(o.user_depth, min(f.depth) FILTER (f.package = o.package), min(f.depth)) AS depth
    FROM outermost AS o
    JOIN framed AS f USING (report_id, stack_id)
    GROUP BY o.report_id, o.stack_id, o.fetches, o.is_idle, o.in_worker, o.user_depth
),
called AS (
    SELECT o.report_id, o.stack_id, arg_max(f.frame_id, f.depth) AS frame_id
    FROM owned AS o
    JOIN framed AS f USING (report_id, stack_id)
    WHERE f.depth < o.depth AND NOT is_wrapper(f.function)
    GROUP BY ALL
)
SELECT
    o.report_id, o.stack_id, o.fetches, o.is_idle, coalesce(o.in_worker, false) AS in_worker, o.is_user,
    f.frame_id, c.frame_id AS called_id
FROM owned AS o
JOIN framed AS f USING (report_id, stack_id, depth)
LEFT JOIN called AS c USING (report_id, stack_id);
