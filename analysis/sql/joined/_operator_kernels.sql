-- Profiled kernels that are spoken for: those of libraries by an operator's finding, since their code is not
-- the user's, and those with which a benchmark empties the L2 cache.
CREATE VIEW _operator_kernels AS
WITH told AS (
    SELECT report_id, unnest(names) AS demangled, false AS flush
    FROM operator_findings
    UNION ALL
    SELECT report_id, demangled, true
    FROM _flush_kernels
)
SELECT DISTINCT p.ncu_report_id AS report_id, kernel_key(t.demangled) AS key
FROM told AS t
JOIN kernel_names AS n ON n.report_id = t.report_id AND n.demangled = t.demangled
JOIN _report_pairs AS p ON p.report_id = t.report_id
WHERE t.flush OR is_closed(n.library);
