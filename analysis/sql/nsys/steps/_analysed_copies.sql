-- Copies and memsets that begin in the analyzed windows, with what launched them.
CREATE VIEW _analysed_copies AS
SELECT l.*, m.operation, m.bytes, m.src_kind, m.dst_kind
FROM nsys_memory_ops AS m
JOIN _analysed_launches AS l
    ON l.report_id = m.report_id AND l.pid = m.pid AND l.correlation_id = m.correlation_id
        AND l.start_ns = m.start_ns AND l.device = m.device;
