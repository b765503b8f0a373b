-- Range names with their counters replaced by *, and domains, numbered from 1, so that string expressions run
-- once per name and not per range. DuckDB estimates the lists as short, so that it joins ranges to them.
-- @materialize
CREATE VIEW _range_stems AS
SELECT 'name' AS kind, name, stem, dense_rank() OVER (ORDER BY stem)::INTEGER AS number
FROM (
    SELECT name, range_stem(name) AS stem
    FROM _names
    WHERE kind = 'range' AND name != ''
)
UNION ALL
SELECT 'domain', domain, domain, (row_number() OVER (ORDER BY domain))::INTEGER
FROM (SELECT unnest(list(DISTINCT domain)) AS domain FROM nsys_nvtx_ranges)
WHERE domain != '';
