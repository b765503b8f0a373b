-- Analyzed windows as intervals, with consecutive windows merged, for each process on a GPU. An operation
-- belongs to the interval in which it begins.
-- @materialize
CREATE VIEW _analysed_spans AS
WITH islands AS (
    SELECT
        w.track,
        w.start_ns,
        w.end_ns,
        -- Numbers of consecutive windows increase as fast as their rank.
        w.window_id - row_number() OVER (PARTITION BY w.track ORDER BY w.window_id) AS island,
        w.end_ns = p.end_ns AS last
    FROM _step_windows AS w
    SEMI JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id
    JOIN _spans AS p USING (track)
),
spans AS (
    -- Operations without duration may begin at the very end.
    SELECT track, min(start_ns) AS start_ns, max(end_ns) + bool_or(last)::INTEGER AS end_ns
    FROM islands
    GROUP BY track, island
)
SELECT t.report_id, t.pid, t.cuda_device, s.track, s.start_ns, s.end_ns
FROM spans AS s
JOIN _tracks AS t USING (track);
