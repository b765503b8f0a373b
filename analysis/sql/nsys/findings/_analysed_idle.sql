-- Idle intervals of each GPU in the analyzed windows; dur_ns is their length.
CREATE VIEW _analysed_idle AS
SELECT g.report_id, g.device, i.track, i.op_id, i.start_ns, i.end_ns, i.end_ns - i.start_ns AS dur_ns
FROM _idle AS i
JOIN _gpus AS g USING (track)
SEMI JOIN _analysed AS a ON a.track = i.track AND a.window_id = i.window_id;
