-- Ranges that show iterations of an engine by their names, and what the names say (engines.toml); on each
-- thread, only ranges that are not nested in another one. Ranges that launch too little of the engine's work
-- are none of iterations.
-- @materialize
CREATE VIEW _engine_ranges AS
WITH names AS (
    SELECT name, engine_iteration(name) AS said
    FROM _names
    WHERE kind = 'range' AND EXISTS (FROM _served_captures)
),
named AS (
    SELECT
        c.report_id, c.track, c.pid, r.tid, r.range_id, r.name, n.said, r.start_ns, r.first_call, r.calls,
        coalesce(r.end_ns, 9223372036854775807) AS until_ns
    FROM _served_captures AS c
    JOIN nsys_nvtx_ranges AS r ON r.report_id = c.report_id AND r.pid = c.pid
    JOIN names AS n ON n.name = r.name
    -- Operators, such as those of attention, may have these words in their names.
    WHERE n.said IS NOT NULL AND r.style != 'Mark' AND NOT is_of_profiler(r.domain)
        AND r.domain IS DISTINCT FROM 'cpu_op' AND NOT is_part(r.name)
),
outermost AS (
    SELECT *
    FROM named
    QUALIFY coalesce(until_ns > max(until_ns) OVER (
        PARTITION BY report_id, tid
        ORDER BY start_ns, until_ns DESC, range_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), true)
),
ops AS (
    SELECT c.report_id, o.call_id, o.start_ns, o.end_ns
    FROM _ops AS o
    JOIN _served_captures AS c ON c.track = o.track AND c.pid = o.pid
),
launched AS (
    SELECT r.range_id, o.*
    FROM ops AS o
    ASOF JOIN (FROM outermost WHERE calls > 0) AS r
        ON r.report_id = o.report_id AND r.first_call <= o.call_id
    WHERE o.call_id < r.first_call + r.calls
),
placed AS (
    SELECT report_id, range_id, min(start_ns) AS first_ns, max(end_ns) AS gpu_end_ns,
        sum(end_ns - start_ns) AS work_ns
    FROM launched
    GROUP BY report_id, range_id
),
total AS (
    SELECT report_id, sum(end_ns - start_ns) AS work_ns
    FROM ops
    GROUP BY report_id
)
SELECT r.report_id, r.track, r.range_id, r.name, r.said, r.start_ns AS host_start_ns,
    r.until_ns AS host_end_ns, p.first_ns, p.gpu_end_ns
FROM outermost AS r
JOIN placed AS p USING (report_id, range_id)
JOIN total AS t USING (report_id)
QUALIFY sum(p.work_ns) OVER (PARTITION BY r.report_id)
    >= threshold('timeline.range_coverage_pct') / 100 * t.work_ns;
