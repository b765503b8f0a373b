-- Copies to the device that are large enough for input data.
CREATE VIEW _input_copies AS
SELECT l.report_id, l.op_id
FROM nsys_memory_ops AS m
JOIN launches AS l
    ON l.report_id = m.report_id
        AND l.pid = m.pid
        AND l.correlation_id = m.correlation_id
        AND l.start_ns = m.start_ns
        AND l.device = m.device
WHERE m.operation LIKE '[CUDA memcpy Host-to-Device%' AND m.bytes >= threshold('timeline.input_bytes');
