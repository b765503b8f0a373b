-- Windows whose kernels are classified by operator: the analyzed windows nearest to the median. A few steps
-- are enough for shares and limit the cost in a long capture. Without steps, the whole time is used.
-- @materialize
CREATE VIEW _operator_windows AS
WITH analysed AS (
    SELECT
        w.track, w.step, w.window_id, w.start_ns, w.end_ns,
        abs(w.end_ns - w.start_ns - median(w.end_ns - w.start_ns) OVER (PARTITION BY w.track)) AS beside_ns
    FROM _step_windows AS w
    SEMI JOIN _analysed AS a ON a.track = w.track AND a.window_id = w.window_id
)
SELECT track, step, start_ns, end_ns
FROM analysed
QUALIFY row_number() OVER (PARTITION BY track ORDER BY beside_ns, window_id) <= threshold('operator.steps');
