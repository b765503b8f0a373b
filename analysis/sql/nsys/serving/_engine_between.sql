-- Time between iterations of an engine with requests in progress (_engine_loads), as intervals; the iteration
-- is the next one.
-- @materialize
CREATE VIEW _engine_between AS
SELECT n.report_id, n.iteration, greatest(n.previous_ns, i.start_ns) AS start_ns,
    least(n.start_ns, i.end_ns) AS end_ns
FROM _engine_iterations AS n
JOIN _engine_loads AS i ON i.report_id = n.report_id AND i.start_ns < n.start_ns AND i.end_ns > n.previous_ns
WHERE n.start_ns > n.previous_ns;
