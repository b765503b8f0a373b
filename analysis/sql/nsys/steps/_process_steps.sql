-- Steps of each process on each GPU, from one source per process: ranges, else the order of launches. A step
-- begins with the first operation that it launched and ends when the next step begins; the last step of a
-- loop ends with its own last operation. A single range is a step with its host part, which begins when the
-- GPU has finished earlier work, recorded or not.
-- @materialize
CREATE VIEW _process_steps AS
WITH ranges AS (
    SELECT report_id, range_id, name, pid, start_ns, end_ns, first_call, calls, source
    FROM _steps
    UNION ALL
    SELECT report_id, range_id, name, pid, start_ns, end_ns, first_call, calls, source
    FROM _repeated_ranges
),
calls AS (
    SELECT report_id, range_id, unnest(range(first_call, first_call + calls)) AS call_id
    FROM ranges
    WHERE calls > 0
),
begun AS (
    SELECT t.track, c.report_id, c.range_id, min(l.start_ns) AS start_ns, max(l.end_ns) AS end_ns
    FROM calls AS c
    JOIN launches AS l USING (report_id, call_id)
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    GROUP BY t.track, c.report_id, c.range_id
),
-- No earlier step shows the host part of a single step; on a shared GPU, others may work in it.
single AS (
    SELECT b.track, any_value(b.start_ns) AS first_ns
    FROM begun AS b
    SEMI JOIN (SELECT track FROM _tracks GROUP BY track HAVING count(*) = 1) USING (track)
    GROUP BY b.track
    HAVING count(*) = 1
),
earlier AS (
    SELECT s.track, max(l.end_ns) AS end_ns
    FROM single AS s
    LEFT JOIN _placed_launches AS l ON l.track = s.track AND l.start_ns < s.first_ns
    GROUP BY s.track
),
-- Work that was issued before the capture is not recorded. It ends where the first operation of a stream
-- starts long after its call, on a GPU that has hardly recorded any work until then.
busy AS (
    SELECT
        l.track, l.pid, l.stream, l.start_ns, l.end_ns, l.op_id, l.api_end_ns,
        max(l.end_ns) OVER past AS busy_until,
        sum(l.end_ns - l.start_ns) OVER past AS work_ns
    FROM _placed_launches AS l
    SEMI JOIN single USING (track)
    WINDOW past AS (
        PARTITION BY l.track
        ORDER BY l.start_ns, l.end_ns, l.op_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
unrecorded AS (
    SELECT s.track, max(w.start_ns) AS until_ns
    FROM single AS s
    JOIN (
        FROM busy
        WHERE stream IS NOT NULL
        QUALIFY row_number() OVER (
            PARTITION BY track, pid, stream ORDER BY start_ns, end_ns, op_id
        ) = 1
    ) AS w ON w.track = s.track AND w.start_ns >= s.first_ns
    WHERE w.start_ns - greatest(w.api_end_ns, w.busy_until) > threshold('timeline.device_wait_ns')
        AND 100.0 * coalesce(w.work_ns, 0)
            < threshold('timeline.contributor_pct') * (w.start_ns - w.api_end_ns)
    GROUP BY s.track
),
annotated AS (
    SELECT
        b.track,
        r.report_id,
        r.pid,
        r.source,
        1 AS loop,
        r.name,
        r.start_ns AS host_start_ns,
        coalesce(r.end_ns, 9223372036854775807) AS host_end_ns,
        coalesce(u.until_ns, b.start_ns) AS first_ns,
        CASE
            WHEN e.track IS NULL THEN b.start_ns
            ELSE coalesce(u.until_ns, least(b.start_ns, greatest(r.start_ns, e.end_ns)))
        END AS start_ns,
        if(e.track IS NULL, b.end_ns, greatest(b.end_ns, r.end_ns)) AS end_ns,
        NULL::DOUBLE AS match,
        1 AS repeats,
        NULL::BIGINT AS period,
        row_number() OVER (PARTITION BY b.track, r.pid ORDER BY b.start_ns DESC, r.range_id DESC) = 1 AS last
    FROM ranges AS r
    JOIN begun AS b USING (report_id, range_id)
    LEFT JOIN earlier AS e ON e.track = b.track
    LEFT JOIN unrecorded AS u ON u.track = b.track
),
-- Other threads launch as well: the last operation of the last step may belong to them.
ends AS (
    SELECT a.track, a.pid, max(l.end_ns) AS end_ns
    FROM annotated AS a
    JOIN _tracks AS t ON t.track = a.track AND t.pid = a.pid
    JOIN launches AS l
        ON l.report_id = t.report_id
            AND l.pid = t.pid
            AND l.device = t.cuda_device
            AND l.api_start_ns BETWEEN a.host_start_ns AND a.host_end_ns
    WHERE a.last
    GROUP BY a.track, a.pid
),
periodic AS (
    SELECT t.track, s.*, l.main
    FROM launch_steps AS s
    JOIN _loops AS l USING (report_id, pid, loop)
    JOIN _tracks AS t
        ON t.report_id = s.report_id AND t.pid = s.pid AND t.cuda_device IS NOT DISTINCT FROM s.device
    ANTI JOIN benchmark_loops AS b ON b.report_id = t.report_id AND b.device = t.device
    WHERE l.main OR l.beside
),
found AS (
    SELECT
        a.track, a.report_id, a.pid, a.source, a.loop, 1 AS run, true AS main, a.name,
        a.host_start_ns, a.host_end_ns, a.first_ns, a.start_ns,
        greatest(a.end_ns, e.end_ns) AS end_ns, a.match, a.repeats, a.period
    FROM annotated AS a
    LEFT JOIN ends AS e ON e.track = a.track AND e.pid = a.pid AND a.last
    UNION ALL
    SELECT
        track, report_id, pid, 'period', loop, run, main,
        if(
            repeats > 1,
            concat(repeats, ' iterations from ', repeats * (step - 1) + 1),
            concat('step ', step)
        ),
        host_start_ns, host_end_ns, start_ns, start_ns, end_ns, match, repeats, period // repeats
    FROM periodic
)
SELECT
    * EXCLUDE (run, start_ns, end_ns),
    start_ns,
    -- The next step begins before this one ends if streams overlap.
    coalesce(
        lead(start_ns) OVER (PARTITION BY track, pid, loop, run ORDER BY start_ns, host_start_ns),
        least(end_ns, lead(start_ns) OVER (PARTITION BY track, pid ORDER BY start_ns, host_start_ns)),
        end_ns
    ) AS end_ns
FROM found;
