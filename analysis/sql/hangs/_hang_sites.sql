-- The line of the program that made a call, by the stack of the call: the innermost frame of the user's code,
-- else the innermost frame.
-- @materialize
CREATE VIEW _hang_sites AS
SELECT
    s.report_id,
    s.stack_id,
    concat(
        coalesce(short_source(f.file) || coalesce(':' || f.line, '') || ' ', ''), f.function, '()'
    ) AS site
FROM host_stacks AS s
JOIN host_frames AS f ON f.report_id = s.report_id AND f.frame_id = s.frame_id
SEMI JOIN hang_dumps AS d ON d.report_id = s.report_id
QUALIFY row_number() OVER (
    PARTITION BY s.report_id, s.stack_id ORDER BY f.kind != 'user', s.depth
) = 1;
