-- Processes that started copies of themselves, such as the workers of a data loader.
-- @materialize
CREATE VIEW _parents AS
SELECT DISTINCT report_id, pid
FROM nsys_osrt
WHERE name IN (
    SELECT name FROM (SELECT unnest(list(DISTINCT name)) AS name FROM nsys_osrt) WHERE is_starting(name)
);
