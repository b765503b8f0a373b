-- Copies and memsets with the calls that issued them, joined on process and correlation id; nsys ignores the
-- process.
-- @materialize
CREATE VIEW _called_memory_ops AS
SELECT
    m.report_id,
    m.dur_ns AS duration_ns,
    m.start_ns,
    m.operation,
    m.src_kind,
    m.dst_kind,
    m.bytes,
    m.pid,
    m.device AS device_id,
    m.context AS context_id,
    m.stream AS stream_id,
    c.name AS call,
    c.recorded_name AS api_name
FROM nsys_memory_ops AS m
JOIN nsys_api_calls AS c USING (report_id, pid, correlation_id);
