-- Idle intervals in which a kernel is built anew: before the process launches the same kernel, it loads a
-- module, repeatedly within the steady steps. Without steps, this has to happen more often, because each
-- kernel is built once when the program starts.
-- @materialize
CREATE VIEW _reloaded AS
WITH names AS (
    SELECT name FROM _names WHERE kind = 'api' AND is_building(name)
),
loads AS (
    SELECT report_id, pid, start_ns FROM nsys_api_calls WHERE name IN (SELECT name FROM names)
),
analysed AS (
    SELECT g.*, p.phase = 'steady' AS steady
    FROM (FROM _idle SEMI JOIN _analysed USING (track, window_id)) AS g
    LEFT JOIN _step_phases AS p USING (track, window_id)
    WHERE g.call_ns > g.start_ns
)
SELECT DISTINCT g.track, g.op_id
FROM analysed AS g
ASOF JOIN loads AS b ON b.report_id = g.report_id AND b.pid = g.pid AND b.start_ns <= g.call_ns
JOIN launches AS l ON l.report_id = g.report_id AND l.op_id = g.op_id
WHERE b.start_ns >= g.start_ns AND l.kind IN ('kernel', 'graph')
QUALIFY count(*) OVER (PARTITION BY g.track, coalesce(l.demangled, l.name)) >= if(
    g.steady IS TRUE, threshold('timeline.loop_repeats'), threshold('timeline.recurring_gaps')
);
