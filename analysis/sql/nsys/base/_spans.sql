-- Time span of each GPU, from the start of its first operation to the end of its last.
-- @materialize
CREATE VIEW _spans AS
SELECT track, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM _classed_ops
GROUP BY track;
