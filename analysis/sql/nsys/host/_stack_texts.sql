-- Stacks in words, outermost frame first, without wrappers of calls.
CREATE VIEW _stack_texts AS
SELECT
    s.report_id,
    s.stack_id,
    string_agg(
        concat(f.function, ' (', short_source(f.file), ':' || f.line, ')'), ' > ' ORDER BY s.depth DESC
    ) AS stack
FROM host_stacks AS s
JOIN host_frames AS f USING (report_id, frame_id)
WHERE NOT is_wrapper(f.function)
GROUP BY s.report_id, s.stack_id;
