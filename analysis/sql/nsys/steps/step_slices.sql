-- Contents of a step's drawn timeline: GPU operations by stream, idle intervals by cause, and the
-- launching threads' CUDA calls, NVTX ranges and sampled lines of code that overlap the step.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- role VARCHAR: median or slowest, as in step_pictures
-- lane VARCHAR: lane in which the slice is drawn: the stream, the thread number, or idle
-- kind VARCHAR: kernel, memcpy, memset, graph, um, idle, call, range or code (successive samples of a line)
-- depth BIGINT: nesting depth of a range on its thread, from 0; always 0 for other kinds
-- name VARCHAR: short name of the kernel, cause of the idle interval, name of the operation, call or range,
--   or line of the program with its function
-- kernel_name VARCHAR: function name of the kernel; NULL for other kinds
-- category VARCHAR: kernel category as in kernel_names, or cause of the idle interval; otherwise transfer,
--   migration, graph, call, range or code
-- grid VARCHAR: grid size in blocks, as x,y,z; NULL if the slice is not a kernel
-- block VARCHAR: block size in threads, as x,y,z; NULL if the slice is not a kernel
-- start_ns BIGINT: start relative to the start of the step, ns; negative if the slice began before the step
-- dur_ns BIGINT: duration, ns
-- next_name VARCHAR: operation that ended the idle interval; NULL for other kinds
-- stack VARCHAR: stack of the longest sample, outermost frame first; NULL unless `kind` is code
-- call_lane VARCHAR: lane of the call that launched the operation: the thread number; NULL if unknown
-- call_start_ns BIGINT: start of the call that launched the operation, relative to the start of the step, ns;
--   negative if the call began before the step; NULL if unknown
CREATE VIEW step_slices AS
WITH ops AS (
    SELECT
        p.report_id, p.device, p.role, p.start_ns AS from_ns, p.end_ns AS until_ns,
        l.* EXCLUDE (report_id, device)
    FROM step_pictures AS p
    JOIN _placed_launches AS l
        ON l.report_id = p.report_id AND l.gpu = p.device AND l.start_ns < p.end_ns AND l.end_ns > p.start_ns
),
sizes AS (
    SELECT DISTINCT ON (report_id, pid, stream, start_ns)
        report_id, pid, stream, start_ns,
        concat_ws(',', grid_x, grid_y, grid_z) AS grid,
        concat_ws(',', block_x, block_y, block_z) AS block
    FROM nsys_kernels
    SEMI JOIN ops USING (report_id, pid, stream, start_ns)
),
names AS (
    SELECT report_id, demangled, any_value(short_name) AS short_name, any_value(category) AS category
    FROM kernel_names
    GROUP BY report_id, demangled
),
threads AS (
    SELECT report_id, device, role, from_ns, until_ns, pid, tid
    FROM ops
    WHERE tid IS NOT NULL
    GROUP BY ALL
),
-- The line of the program in each sample of these threads.
lines AS (
    SELECT
        t.report_id, t.device, t.role, t.from_ns, t.pid, t.tid, s.start_ns, s.end_ns, s.stack_id,
        c.frame_id,
        coalesce(
            lag(c.frame_id) OVER earlier != c.frame_id OR lag(s.end_ns) OVER earlier != s.start_ns, true
        ) AS begins
    FROM threads AS t
    JOIN _host_cells AS s
        ON s.report_id = t.report_id AND s.pid = t.pid AND s.tid = t.tid
        AND s.start_ns < t.until_ns AND s.end_ns > t.from_ns
    JOIN _stack_code AS c ON c.report_id = s.report_id AND c.stack_id = s.stack_id
    WINDOW earlier AS (PARTITION BY t.report_id, t.device, t.role, t.pid, t.tid ORDER BY s.start_ns)
),
numbered AS (
    SELECT
        *,
        count_if(begins) OVER (
            PARTITION BY report_id, device, role, pid, tid ORDER BY start_ns
        ) AS number
    FROM lines
),
executed AS (
    SELECT
        report_id, device, role, tid, any_value(frame_id) AS frame_id,
        arg_max(stack_id, (end_ns - start_ns, -start_ns)) AS stack_id,
        min(start_ns) - any_value(from_ns) AS start_ns, max(end_ns) - min(start_ns) AS dur_ns
    FROM numbered
    GROUP BY report_id, device, role, pid, tid, number
)
SELECT
    o.report_id, o.device, o.role, coalesce(o.stream::VARCHAR, 'operations') AS lane, o.kind, 0 AS depth,
    coalesce(n.short_name, o.name) AS name,
    if(o.kind = 'kernel', o.name, NULL) AS kernel_name,
    CASE
        WHEN o.kind = 'kernel' THEN coalesce(n.category, 'other')
        WHEN o.kind = 'graph' THEN 'graph'
        WHEN is_migration(o.name) THEN 'migration'
        ELSE 'transfer'
    END AS category,
    s.grid, s.block,
    o.start_ns - o.from_ns AS start_ns,
    o.end_ns - o.start_ns AS dur_ns,
    NULL::VARCHAR AS next_name,
    NULL::VARCHAR AS stack,
    o.tid::VARCHAR AS call_lane,
    o.api_start_ns - o.from_ns AS call_start_ns
FROM ops AS o
LEFT JOIN names AS n
    ON n.report_id = o.report_id AND n.demangled = coalesce(o.demangled, o.name) AND o.kind = 'kernel'
LEFT JOIN sizes AS s
    ON s.report_id = o.report_id AND s.pid = o.pid AND s.stream = o.stream AND s.start_ns = o.start_ns
    AND o.kind = 'kernel'
UNION ALL
SELECT
    p.report_id, p.device, p.role, 'idle', 'idle', 0, g.cause, NULL, g.cause, NULL, NULL,
    g.start_ns - p.start_ns, g.dur_ns, l.name, NULL, NULL, NULL
FROM step_pictures AS p
JOIN _gpus AS t ON t.report_id = p.report_id AND t.device = p.device
JOIN _gaps AS g ON g.track = t.track AND g.start_ns < p.end_ns AND g.end_ns > p.start_ns
JOIN launches AS l ON l.report_id = p.report_id AND l.op_id = g.op_id
UNION ALL
SELECT
    t.report_id, t.device, t.role, t.tid::VARCHAR, 'call', 0, c.name, NULL, 'call', NULL, NULL,
    c.start_ns - t.from_ns, c.dur_ns, NULL, NULL, NULL, NULL
FROM threads AS t
JOIN nsys_api_calls AS c
    ON c.report_id = t.report_id AND c.pid = t.pid AND c.tid = t.tid
    AND c.start_ns < t.until_ns AND c.end_ns > t.from_ns
UNION ALL
SELECT
    t.report_id, t.device, t.role, t.tid::VARCHAR, 'range', coalesce(r.depth, 0), r.name, NULL,
    'range', NULL, NULL,
    r.start_ns - t.from_ns, r.dur_ns, NULL, NULL, NULL, NULL
FROM threads AS t
JOIN nsys_nvtx_ranges AS r
    ON r.report_id = t.report_id AND r.pid = t.pid AND r.tid = t.tid
    AND r.start_ns < t.until_ns AND r.end_ns > t.from_ns
WHERE r.style = 'PushPop' AND r.dur_ns IS NOT NULL
UNION ALL
SELECT
    e.report_id, e.device, e.role, e.tid::VARCHAR, 'code', 0,
    concat(short_source(f.file), ':' || f.line, ' ', f.function), NULL, 'code', NULL, NULL,
    e.start_ns, e.dur_ns, NULL, s.stack, NULL, NULL
FROM executed AS e
JOIN host_frames AS f USING (report_id, frame_id)
LEFT JOIN _stack_texts AS s USING (report_id, stack_id)
ORDER BY report_id, device, role, start_ns, depth, dur_ns DESC, kind, lane, name;
