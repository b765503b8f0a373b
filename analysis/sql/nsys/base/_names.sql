-- Names on the timeline, each once, and how nsys's statistics spell them: a regular expression
-- takes longer than all else where rows are millions.  As elements of a list, so that a filter on
-- names is not moved to all rows, behind DISTINCT.
-- @materialize
CREATE VIEW _names AS
SELECT 'kernel' AS kind, unnest(list(DISTINCT name)) AS name, NULL AS title
FROM launches
WHERE launches.kind = 'kernel'
UNION ALL
SELECT 'api', unnest(list(DISTINCT name)), NULL
FROM nsys_api_calls
UNION ALL
SELECT 'recorded api', recorded_name, nsys_api_name(recorded_name)
FROM (SELECT unnest(list(DISTINCT recorded_name)) AS recorded_name FROM nsys_api_calls)
UNION ALL
SELECT 'range', unnest(list(DISTINCT name)), NULL
FROM nsys_nvtx_ranges;
