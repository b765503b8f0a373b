-- Ranges that are steps: numbered names, iterations of an engine, or the names of --step-range. On each
-- thread, only ranges that are not nested in another count, because the iteration of a harness may contain
-- the step of the program. If a process has both ranges and torch.profiler's steps, the ranges of the program
-- are used.
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
        calls,
        CASE
            WHEN step_range_given() THEN 'step range'
            WHEN name LIKE 'ProfilerStep%' THEN 'ProfilerStep'
            ELSE 'NVTX'
        END AS source
    FROM nsys_nvtx_ranges
    WHERE (
        step_loop() IS NULL AND name IN (SELECT name FROM _names WHERE kind = 'range' AND is_step(name))
    ) OR (report_id, range_id) IN (SELECT (report_id, range_id) FROM _iteration_ranges)
),
outermost AS (
    SELECT *
    FROM named
    QUALIFY coalesce(until > max(until) OVER (
        PARTITION BY report_id, pid, tid, source
        ORDER BY start_ns, until DESC, range_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
)
SELECT report_id, range_id, name, pid, start_ns, end_ns, first_call, calls, source
FROM outermost
QUALIFY source != 'ProfilerStep' OR bool_and(source = 'ProfilerStep') OVER (PARTITION BY report_id, pid);
