-- Ranges whose names state the requests of an iteration of an engine (engines.toml), as in `iteration 7
-- decode batch=2`, if they launch enough of the GPU work of their process. Operators and modules may have
-- such words in their names. With --step-range or --step, names say nothing.
-- @materialize
CREATE VIEW _iteration_ranges AS
WITH names AS (
    SELECT name, engine_iteration(name) AS said
    FROM _names
    WHERE kind = 'range' AND regexp_matches(name, '\d') AND NOT is_part(name)
        AND step_loop() IS NULL AND NOT step_range_given()
),
named AS (
    SELECT report_id, pid, tid, range_id, first_call, calls
    FROM nsys_nvtx_ranges
    WHERE style != 'Mark' AND calls > 0
        AND domain IS DISTINCT FROM 'cpu_op' AND NOT is_of_profiler(domain)
        AND name IN (
            SELECT name
            FROM names
            WHERE said.class IS NOT NULL
                AND coalesce(said.prefills, said.decodes, said.batch) IS NOT NULL
        )
),
processes AS (
    SELECT DISTINCT report_id, pid FROM named
),
ops AS (
    SELECT report_id, pid, call_id, end_ns - start_ns AS dur_ns
    FROM (FROM launches SEMI JOIN processes USING (report_id, pid))
),
total AS (
    SELECT report_id, pid, sum(dur_ns) AS work_ns
    FROM ops
    GROUP BY report_id, pid
),
-- Nested ranges contain the same operations.
inside AS (
    SELECT o.report_id, o.pid, sum(o.dur_ns) AS work_ns
    FROM ops AS o
    SEMI JOIN (
        SELECT DISTINCT report_id, unnest(range(first_call, first_call + calls)) AS call_id FROM named
    ) AS c ON c.report_id = o.report_id AND c.call_id = o.call_id
    GROUP BY o.report_id, o.pid
)
SELECT n.report_id, n.pid, n.range_id
FROM named AS n
JOIN inside AS i USING (report_id, pid)
JOIN total AS t USING (report_id, pid)
WHERE i.work_ns >= threshold('timeline.range_coverage_pct') / 100 * t.work_ns;
