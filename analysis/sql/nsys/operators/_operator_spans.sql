-- Duration of the operator windows of each GPU, and the number of steps in them, if they are steps.
CREATE VIEW _operator_spans AS
SELECT track, sum(end_ns - start_ns)::BIGINT AS time_ns, nullif(count(step), 0) AS steps
FROM _operator_windows
GROUP BY track;
