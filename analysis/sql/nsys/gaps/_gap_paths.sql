-- NVTX ranges around the launching calls of operations that end idle intervals longer than a launch gap:
-- the innermost one and up to two around it, outer ones first.
-- @materialize
CREATE VIEW _gap_paths AS
WITH long_gaps AS MATERIALIZED (
    SELECT g.track, g.op_id, l.report_id, l.range_id
    FROM _gaps AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE g.dur_ns > threshold('timeline.launch_gap_ns') AND l.range_id IS NOT NULL
),
-- Enclosing ranges, one lookup each: recursion or joins would read or sort all ranges per level.
innermost AS MATERIALIZED (
    SELECT DISTINCT report_id, range_id
    FROM long_gaps
),
first AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT range_id FROM innermost)
),
second AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT enclosing FROM first)
),
third AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT enclosing FROM second)
),
outwards AS (
    SELECT
        i.report_id,
        i.range_id,
        concat_ws(' > ', CASE WHEN c.enclosing IS NOT NULL THEN '...' END, c.name, b.name, a.name) AS path
    FROM innermost AS i
    JOIN first AS a ON a.report_id = i.report_id AND a.range_id = i.range_id
    LEFT JOIN second AS b ON b.report_id = i.report_id AND b.range_id = a.enclosing
    LEFT JOIN third AS c ON c.report_id = i.report_id AND c.range_id = b.enclosing
)
SELECT g.track, g.op_id, o.path
FROM long_gaps AS g
JOIN outwards AS o USING (report_id, range_id);
