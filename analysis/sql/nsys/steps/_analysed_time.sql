-- Duration of the windows that verdicts are about, ns, and the number of steps in them; 0 without steps.
-- @materialize
CREATE VIEW _analysed_time AS
SELECT track, sum(end_ns - start_ns)::BIGINT AS time_ns, count(step) AS steps
FROM _step_windows
SEMI JOIN _analysed USING (track, window_id)
GROUP BY track;
