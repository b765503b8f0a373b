-- Calls in which a process starts a copy of itself, such as a worker of a data loader.
-- @materialize
CREATE VIEW _process_starts AS
SELECT report_id, pid, start_ns
FROM nsys_osrt
WHERE name IN (SELECT name FROM _names WHERE kind = 'os' AND is_starting(name));
