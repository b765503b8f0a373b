-- The windows whose kernels are told apart by operators: the first of those that verdicts are about.  A few
-- steps are enough for shares, and cost no more in a long capture; without steps it is all of the time.
-- @materialize
CREATE VIEW _operator_windows AS
SELECT w.track, w.step, w.start_ns, w.end_ns
FROM _step_windows AS w
SEMI JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id
QUALIFY row_number() OVER (PARTITION BY w.track ORDER BY w.window_id) <= threshold('operator.steps');
