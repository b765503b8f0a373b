-- Thread of each process that begins the steps: PyTorch's main thread, which launches the forward pass and
-- the optimizer; the backward pass launches from threads of its own.
-- @materialize
CREATE VIEW _main_threads AS
WITH begun AS (
    SELECT
        o.track,
        o.pid,
        o.window_id,
        arg_min(o.tid, (o.api_start_ns, o.op_id)) AS tid
    FROM _ops AS o
    SEMI JOIN _analysed AS a USING (track, window_id)
    WHERE o.api_start_ns IS NOT NULL
    GROUP BY o.track, o.pid, o.window_id
),
counted AS (
    SELECT track, pid, tid, count(*) AS windows
    FROM begun
    GROUP BY track, pid, tid
)
SELECT track, pid, arg_max(tid, (windows, -tid)) AS tid
FROM counted
GROUP BY track, pid;
