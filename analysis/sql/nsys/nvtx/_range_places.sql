-- Position at which the ranges of each report begin in the sequence of the ranges of all reports.
-- @materialize
CREATE VIEW _range_places AS
SELECT report_id, (sum(ranges) OVER (ORDER BY report_id) - ranges)::BIGINT AS first
FROM (SELECT report_id, max(range_id) + 1 AS ranges FROM nsys_nvtx_ranges GROUP BY report_id);
