-- When each communication kernel was launched: in the forward pass, in the backward pass, or after it in the
-- same step. PyTorch's backward pass launches from threads of its own; the main thread is the one that begins
-- the steps (_main_threads). NULL if only one thread computes.
-- @materialize
CREATE VIEW _group_phases AS
WITH others AS (
    SELECT o.track, o.pid, o.window_id, max(o.api_start_ns) AS last_ns
    FROM _ops AS o
    JOIN _main_threads AS m USING (track, pid)
    WHERE o.class = 'compute' AND o.tid != m.tid
    GROUP BY o.track, o.pid, o.window_id
)
SELECT
    c.report_id,
    c.op_id,
    CASE
        WHEN o.last_ns IS NULL THEN NULL
        WHEN c.tid != m.tid THEN 'backward'
        WHEN c.api_start_ns < o.last_ns THEN 'forward'
        ELSE 'after'
    END AS phase
FROM _collectives AS c
JOIN _main_threads AS m USING (track, pid)
LEFT JOIN others AS o ON o.track = c.track AND o.pid = c.pid AND o.window_id = c.window_id
WHERE c.analysed;
