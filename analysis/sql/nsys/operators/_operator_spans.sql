-- How long the windows of operators are of each GPU, and how many steps they are, if they are steps.
CREATE VIEW _operator_spans AS
SELECT track, sum(end_ns - start_ns)::BIGINT AS time_ns, nullif(count(step), 0) AS steps
FROM _operator_windows
GROUP BY track;
