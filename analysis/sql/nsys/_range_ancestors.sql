-- For each range that GPU work was launched in: itself and every range around it.  Computed once.
CREATE VIEW _range_ancestors AS
WITH RECURSIVE up AS (
    SELECT DISTINCT report_id, range_id AS leaf, range_id
    FROM nsys_call_ranges
    UNION ALL
    SELECT u.report_id, u.leaf, r.parent
    FROM up AS u
    JOIN nsys_nvtx_ranges AS r ON r.report_id = u.report_id AND r.range_id = u.range_id
    WHERE r.parent IS NOT NULL
)
SELECT report_id, leaf, range_id
FROM up;
