-- Durations that nsys's summaries are made of, by kind: kernel, memory or api.
CREATE VIEW _durations AS
SELECT report_id, 'kernel' AS kind, demangled AS name, dur_ns
FROM nsys_kernels
UNION ALL
SELECT report_id, 'memory', operation, dur_ns
FROM nsys_memory_ops
UNION ALL
-- nsys strips a version suffix of four digits and leaves longer ones.
SELECT report_id, 'api', regexp_replace(recorded_name, '_v[0-9]{4}$', ''), dur_ns
FROM nsys_api_calls
WHERE api IN ('runtime', 'driver');
