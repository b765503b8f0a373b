-- Communication kernels with what is known about their calls.  A group of calls that launched one
-- kernel counts with all its bytes.  `analysed` are those that begin in the analyzed window.
-- @materialize
CREATE VIEW _collectives AS
SELECT
    l.report_id,
    o.track,
    t.device,
    l.pid,
    l.op_id,
    l.start_ns,
    l.end_ns,
    l.end_ns - l.start_ns AS dur_ns,
    l.name AS kernel_name,
    coalesce(collective_of_call(p.call), nullif(collective_operation(l.name), ''), l.name) AS operation,
    p.communicator,
    CASE
        WHEN NOT p.grouped OR count(*) OVER (PARTITION BY l.report_id, l.range_id) = 1 THEN nullif(p.bytes, 0)
    END::BIGINT AS bytes,
    p.ranks::BIGINT AS ranks,
    a.window_id IS NOT NULL AS analysed
FROM _ops AS o
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = o.op_id
LEFT JOIN _collective_calls AS p ON p.report_id = l.report_id AND p.range_id = l.range_id
LEFT JOIN _analysed AS a ON a.track = o.track AND a.window_id = o.window_id
WHERE o.class = 'communication';
