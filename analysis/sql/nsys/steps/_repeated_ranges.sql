-- Ranges with one repeated name, such as `iteration` or `train_step`, if no range is numbered: per process,
-- the ranges of the name whose consecutive occurrences on a thread launch most of the GPU's work. If several
-- names launch about as much, the name with the fewest occurrences is used.
-- @materialize
CREATE VIEW _repeated_ranges AS
WITH processes AS (
    -- Numbered ranges come first: if all processes have them, no range is read again.
    SELECT DISTINCT report_id, pid
    FROM _tracks
    ANTI JOIN _steps USING (report_id, pid)
    WHERE step_loop() IS NULL
),
plain AS (
    SELECT report_id, pid, tid, name, start_ns, end_ns, range_id, first_call, calls
    FROM (FROM nsys_nvtx_ranges SEMI JOIN processes USING (report_id, pid))
    -- A module or an operator of PyTorch is a part of a step; ranges of a compiler or a profiler are none.
    WHERE end_ns > start_ns AND style != 'Mark'
        AND domain IS DISTINCT FROM 'cpu_op' AND NOT is_of_profiler(domain)
        AND name NOT IN (
            SELECT name FROM _names WHERE kind = 'range' AND (is_part(name) OR is_compiling(name))
        )
),
names AS (
    SELECT report_id, pid, tid, name, min(start_ns) AS start_ns, max(end_ns) AS end_ns, count(*) AS times
    FROM plain
    GROUP BY ALL
    HAVING count(*) BETWEEN threshold('timeline.loop_repeats') AND threshold('timeline.most_steps')
        -- Nested or overlapping occurrences take longer than they span.
        AND sum(end_ns - start_ns) BETWEEN 0.5 * (max(end_ns) - min(start_ns)) AND max(end_ns) - min(start_ns)
),
candidates AS (
    SELECT p.*, n.times
    FROM plain AS p
    JOIN names AS n USING (report_id, pid, tid, name)
),
inside AS (
    SELECT c.report_id, c.pid, c.tid, c.name, c.times, sum(l.end_ns - l.start_ns) AS time_ns
    FROM (FROM launches SEMI JOIN names USING (report_id, pid)) AS l
    JOIN candidates AS c
        ON c.report_id = l.report_id AND c.pid = l.pid AND l.api_start_ns BETWEEN c.start_ns AND c.end_ns
    GROUP BY ALL
),
totals AS (
    SELECT report_id, pid, sum(end_ns - start_ns) AS time_ns
    FROM (FROM launches SEMI JOIN names USING (report_id, pid))
    GROUP BY report_id, pid
),
chosen AS (
    SELECT i.*
    FROM inside AS i
    JOIN totals AS t USING (report_id, pid)
    WHERE i.time_ns >= threshold('timeline.range_coverage_pct') / 100 * t.time_ns
    QUALIFY row_number() OVER (
        PARTITION BY i.report_id, i.pid
        ORDER BY round(10 * i.time_ns / t.time_ns) DESC, i.times, i.name, i.tid
    ) = 1
)
SELECT p.report_id, p.range_id, p.name, p.pid, p.start_ns, p.end_ns, p.first_call, p.calls, 'NVTX' AS source
FROM plain AS p
SEMI JOIN chosen USING (report_id, pid, tid, name);
