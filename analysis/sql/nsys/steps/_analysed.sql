-- Analyzed windows: those of the chosen kind if there are any, else all windows.
-- @materialize
CREATE VIEW _analysed AS
WITH chosen AS (
    SELECT
        w.track,
        w.window_id,
        CASE window_choice()
            WHEN 'whole' THEN true
            WHEN 'steady' THEN p.phase = 'steady'
            WHEN 'startup' THEN p.phase IN ('start-up', 'warm-up')
            ELSE coalesce(w.name = window_choice() OR w.step::VARCHAR = window_choice(), false)
        END AS fits
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
)
SELECT track, window_id
FROM chosen
QUALIFY fits OR NOT bool_or(fits) OVER (PARTITION BY track);
