-- The ranges that are steps: on each thread those that are not nested in another, since the
-- iteration of a harness may contain the step of the program.
-- @materialize
CREATE VIEW _steps AS
WITH named AS (
    SELECT
        report_id,
        range_id,
        name,
        pid,
        tid,
        start_ns,
        end_ns,
        coalesce(end_ns, 9223372036854775807) AS until,
        first_call,
        calls
    FROM nsys_nvtx_ranges
    WHERE name IN (SELECT name FROM _names WHERE kind = 'range' AND is_step(name))
)
SELECT report_id, range_id, name, pid, start_ns, end_ns, first_call, calls
FROM named
QUALIFY coalesce(until > max(until) OVER (
    PARTITION BY report_id, pid, tid
    ORDER BY start_ns, until DESC, range_id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
), true);
