-- Processes that answer requests: their ranges show the iterations of an engine, or they were captured while
-- the server was under load.
-- @materialize
CREATE VIEW _engines AS
SELECT report_id, pid FROM _iteration_ranges
UNION
SELECT report_id, pid FROM _served_captures;
