-- Profiled kernels that an operator's finding speaks for: those of libraries, whose code is not the user's.
CREATE VIEW _operator_kernels AS
WITH told AS (
    SELECT report_id, unnest(names) AS demangled
    FROM operator_findings
)
SELECT DISTINCT p.ncu_report_id AS report_id, kernel_key(t.demangled) AS key
FROM told AS t
JOIN kernel_names AS n ON n.report_id = t.report_id AND n.demangled = t.demangled
JOIN _report_pairs AS p ON p.report_id = t.report_id
WHERE is_closed(n.library);
