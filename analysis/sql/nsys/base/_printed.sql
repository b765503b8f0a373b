-- Lines of the error output of programs that did no GPU work, in order.
CREATE VIEW _printed AS
SELECT report_id, unnest(string_split(value, chr(10))) AS line
FROM nsys_environment
WHERE source = 'output';
