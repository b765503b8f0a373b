-- Profiled kernels without findings of their own: library kernels that an operator finding covers, because
-- the user cannot change their code, and kernels with which a benchmark flushes the L2 cache.
CREATE VIEW _operator_kernels AS
WITH named AS (
    SELECT report_id, unnest(names) AS demangled, false AS flush
    FROM operator_findings
    UNION ALL
    SELECT report_id, demangled, true
    FROM _flush_kernels
)
SELECT DISTINCT p.ncu_report_id AS report_id, kernel_key(t.demangled) AS key
FROM named AS t
JOIN kernel_names AS n ON n.report_id = t.report_id AND n.demangled = t.demangled
JOIN _report_pairs AS p ON p.report_id = t.report_id
WHERE t.flush OR is_closed(n.library);
