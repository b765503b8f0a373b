-- Distinct names on the timeline, with their spelling in nsys's statistics: with millions of rows, regular
-- expressions would dominate the time. The names are elements of a list, so that a filter on names is applied
-- after DISTINCT, not to all rows. Names of operations are numbered.
-- @materialize
CREATE VIEW _names AS
SELECT 'operation' AS kind, name, NULL AS title, (row_number() OVER (ORDER BY name))::INTEGER AS number
FROM (SELECT unnest(list(DISTINCT name)) AS name FROM launches)
UNION ALL
SELECT 'api', unnest(list(DISTINCT name)), NULL, NULL
FROM nsys_api_calls
UNION ALL
SELECT 'recorded api', recorded_name, nsys_api_name(recorded_name), NULL
FROM (SELECT unnest(list(DISTINCT recorded_name)) AS recorded_name FROM nsys_api_calls)
UNION ALL
SELECT 'os', unnest(list(DISTINCT name)), NULL, NULL
FROM nsys_osrt
UNION ALL
SELECT 'range', unnest(list(DISTINCT name)), NULL, NULL
FROM nsys_nvtx_ranges;
