-- Idle intervals in which the process of the next operation started copies of itself, such as the workers of
-- a data loader.
-- @materialize
CREATE VIEW _starting_gaps AS
SELECT DISTINCT i.track, i.op_id
FROM _process_starts AS s
ASOF JOIN _idle AS i ON i.report_id = s.report_id AND i.pid = s.pid AND i.start_ns <= s.start_ns
WHERE s.start_ns < i.end_ns;
