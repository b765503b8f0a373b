-- GPU operations in and just before the steps of _path_steps, on the job's clock, with the collective that
-- they belong to: one that ends on no rank before the last rank has begun it.
CREATE VIEW _path_operations AS
SELECT
    g.job,
    g.role,
    g.report_id,
    g.device,
    o.op_id,
    o.pid,
    l.device AS cuda_device,
    l.stream,
    o.tid,
    if(o.migrates, 'migration', o.class::VARCHAR) AS category,
    coalesce(n.short_name, l.name) AS name,
    o.start_ns + g.offset_ns AS start_ns,
    o.end_ns + g.offset_ns AS end_ns,
    o.api_start_ns + g.offset_ns AS call_ns,
    p.pair,
    (c.residual_ns)::BIGINT AS residual_ns
FROM _path_gpus AS g
JOIN _classed_ops AS o
    ON o.track = g.track AND o.start_ns <= g.read_until_ns AND o.end_ns >= g.read_from_ns
JOIN launches AS l ON l.report_id = g.report_id AND l.op_id = o.op_id
LEFT JOIN kernel_names AS n
    ON n.report_id = l.report_id AND n.demangled = coalesce(l.demangled, l.name) AND l.kind = 'kernel'
LEFT JOIN _paired AS p
    ON p.job = g.job AND p.report_id = g.report_id AND p.op_id = o.op_id
        AND p.operation IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AllToAll')
LEFT JOIN _clocks AS c ON c.job = g.job AND c.report_id = g.report_id
ORDER BY g.job, g.role, start_ns, o.op_id, g.report_id;
