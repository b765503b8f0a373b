-- Timelines that were captured while a server was under load: the load, the captured window on the clock of
-- the timeline, what the model moves and computes, and the process on a GPU with the most work, the engine.
-- @materialize
CREATE VIEW _served_captures AS
WITH loads AS (
    SELECT
        report_id,
        requests_report_id,
        load_id,
        rate,
        window_start_ns - origin_ns AS start_ns,
        window_end_ns - origin_ns AS end_ns,
        weights_bytes,
        kv_bytes_per_token,
        flops_per_token,
        dtype
    FROM _captured_loads
    WHERE clock = 'utc' AND origin_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY requests_report_id, load_id) = 1
),
engines AS (
    SELECT t.report_id, t.track, t.device, t.pid, t.cuda_device
    FROM (FROM launches SEMI JOIN loads USING (report_id)) AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    GROUP BY t.report_id, t.track, t.device, t.pid, t.cuda_device
    QUALIFY row_number() OVER (
        PARTITION BY t.report_id ORDER BY sum(l.end_ns - l.start_ns) DESC, t.track, t.pid
    ) = 1
)
SELECT l.*, e.* EXCLUDE (report_id)
FROM loads AS l
JOIN engines AS e USING (report_id);
