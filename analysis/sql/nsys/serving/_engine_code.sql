-- What the thread of an engine does between iterations, by share of this time: the range, the function or the
-- call with the most of it. Ranges come first, then stacks, then calls that do not wait.
CREATE VIEW _engine_code AS
WITH totals AS (
    SELECT report_id, w.tid, sum(b.end_ns - b.start_ns) AS time_ns
    FROM _engine_between AS b
    JOIN _engine_windows AS w USING (report_id)
    GROUP BY report_id, w.tid
),
named AS (
    SELECT r.report_id, 1 AS place, concat('range ', r.name) AS code, r.start_ns, r.end_ns
    FROM (FROM nsys_nvtx_ranges SEMI JOIN totals USING (report_id, tid)) AS r
    WHERE r.end_ns > r.start_ns AND NOT is_of_profiler(r.domain)
        AND r.name IN (SELECT name FROM _names WHERE kind = 'range' AND engine_iteration(name) IS NULL)
    UNION ALL
    SELECT s.report_id, 2, concat(f.function, ' (', short_source(f.file), ')'), s.start_ns, s.end_ns
    FROM (FROM host_samples SEMI JOIN totals USING (report_id, tid)) AS s
    JOIN (
        SELECT k.report_id, k.stack_id,
            arg_min({function: f.function, file: f.file}, (f.kind != 'user', k.depth)) AS frame
        FROM host_stacks AS k
        JOIN host_frames AS f USING (report_id, frame_id)
        GROUP BY k.report_id, k.stack_id
    ) AS k USING (report_id, stack_id)
    CROSS JOIN LATERAL (SELECT k.frame.function AS function, k.frame.file AS file) AS f
    WHERE s.end_ns > s.start_ns
    UNION ALL
    SELECT o.report_id, 3, concat('call ', o.name), o.start_ns, o.end_ns
    FROM (FROM nsys_osrt SEMI JOIN totals USING (report_id, tid)) AS o
    WHERE o.name IN (
        SELECT name
        FROM _names
        WHERE kind = 'os' AND NOT is_waiting(name) AND NOT is_serving(name) AND NOT is_polling(name)
    )
),
sums AS (
    SELECT n.report_id, n.place, n.code,
        sum(overlap_ns(g.start_ns, g.end_ns, n.start_ns, n.end_ns)) AS time_ns
    FROM named AS n
    JOIN _engine_between AS g ON g.report_id = n.report_id AND n.start_ns < g.end_ns AND n.end_ns > g.start_ns
    GROUP BY n.report_id, n.place, n.code
)
SELECT s.report_id, s.code, least(100, 100.0 * s.time_ns / t.time_ns) AS code_pct
FROM sums AS s
JOIN totals AS t USING (report_id)
WHERE 100 * s.time_ns >= threshold('timeline.named_pct') * t.time_ns
QUALIFY row_number() OVER (PARTITION BY s.report_id ORDER BY s.place, s.time_ns DESC, s.code) = 1;
