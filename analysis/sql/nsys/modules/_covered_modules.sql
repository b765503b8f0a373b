-- Kernel launches with their modules in the analyzed part of each report. In timelines, it consists of the
-- analyzed windows. Reports of 'perfpipe run --modules' have no windows: it consists of the steps after the
-- second one, or of the whole capture if it has fewer than four steps.
-- @materialize
CREATE VIEW _covered_modules AS
WITH windows AS (
    SELECT g.report_id, g.device, w.start_ns, w.end_ns
    FROM _step_windows AS w
    SEMI JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id
    JOIN _gpus AS g USING (track)
),
own AS (
    SELECT *, max(step) OVER (PARTITION BY report_id, device) >= 4 AS stepping
    FROM launch_modules
    WHERE report_id IN (SELECT report_id FROM reports WHERE kind = 'modules')
)
SELECT m.report_id, m.device, m.op_id, m.dur_ns, m.model, m.module, m.class, m.operator, m.phase, m.how
FROM launch_modules AS m
JOIN windows AS w
    ON w.report_id = m.report_id AND w.device = m.device
        AND m.start_ns >= w.start_ns AND m.start_ns < w.end_ns
UNION ALL
SELECT report_id, device, op_id, dur_ns, model, module, class, operator, phase, how
FROM own
WHERE NOT coalesce(stepping, false) OR step > 2;
