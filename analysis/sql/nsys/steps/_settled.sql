-- Windows of which the lateness of ranks is known: the analyzed windows and, if these are the steady steps,
-- the other steps of the same loop after warm-up. A rank that is late lengthens the step, which then
-- differs from the others.
-- @materialize
CREATE VIEW _settled AS
SELECT track, window_id
FROM _analysed
UNION
SELECT w.track, w.window_id
FROM _step_windows AS w
JOIN _step_phases AS p USING (track, window_id)
WHERE window_choice() = 'steady' AND w.main AND p.phase = 'other';
