-- Frames of the stacks during idle time, by the numbers of _idle_whole; the innermost frame has the least
-- depth. The frames of a worker process are inside those of the thread that waits for it.
-- @materialize
CREATE VIEW _idle_frames AS
WITH framed AS (
    SELECT
        k.number, k.report_id, s.depth + if(k.worker_stack_id IS NULL, 0, 1000000) AS depth, s.frame_id,
        NULL AS via
    FROM _idle_whole AS k
    JOIN host_stacks AS s ON s.report_id = k.report_id AND s.stack_id = k.stack_id
    UNION ALL
    SELECT k.number, k.report_id, s.depth, s.frame_id, 'worker process'
    FROM _idle_whole AS k
    JOIN host_stacks AS s ON s.report_id = k.report_id AND s.stack_id = k.worker_stack_id
)
SELECT r.number, r.depth, r.frame_id, r.via, f.function, f.file, f.line, f.kind
FROM framed AS r
JOIN host_frames AS f USING (report_id, frame_id);
