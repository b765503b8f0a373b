-- Durations for nsys's summaries by kind: kernel, memory, api, os, or the style of an NVTX range. Only ranges
-- have a domain.
CREATE VIEW _durations AS
SELECT report_id, 'kernel' AS kind, NULL::VARCHAR AS domain, demangled AS name, dur_ns
FROM nsys_kernels
UNION ALL
SELECT report_id, 'memory', NULL, operation, dur_ns
FROM nsys_memory_ops
UNION ALL
SELECT c.report_id, 'api', NULL, n.title, c.dur_ns
FROM nsys_api_calls AS c
LEFT JOIN _names AS n ON n.kind = 'recorded api' AND n.name = c.recorded_name
WHERE c.api IN ('runtime', 'driver')
UNION ALL
SELECT report_id, 'os', NULL, name, dur_ns
FROM nsys_osrt
-- Calls that nsys could not name do not appear in its reports.
WHERE name != '[Unknown]'
UNION ALL
SELECT report_id, style, domain, name, dur_ns
FROM nsys_nvtx_ranges
WHERE style != 'Mark' AND dur_ns IS NOT NULL;
