-- Contents of a trace viewer: GPU operations, CUDA calls, NVTX ranges, sampled stacks and GPU idle gaps, each
-- assigned to a row.
--
-- report_id: report
-- process: group to which the row belongs, GPU n or Process pid
-- row_name: row within the group: a stream, a thread's CUDA calls, a thread's ranges in one NVTX domain,
--   a thread's stacks, or idle
-- kind: kernel, memcpy, memset, graph or um (GPU operations), api, range, mark, frame or idle
-- name: label
-- start_ns: start, ns
-- dur_ns: duration, ns; 0 for marks
-- depth: number of frames around a frame, which may have the same start and duration; 0 for other kinds
-- nested: false if slices in the row may overlap without being nested (start/end ranges)
-- pid: process id; NULL for idle
-- correlation_id: links a call to the operations that it launched; NULL if none
-- api_tid: thread that launched a GPU operation; NULL otherwise
-- api_start_ns: start of the launching call, ns
-- detail: for idle: the operation that ended the gap, the call that launched this operation, and the
--   innermost range around the call; for frame: file and line
CREATE VIEW _timeline_slices AS
SELECT
    l.report_id,
    concat('GPU ', l.gpu) AS process,
    concat(
        'Stream ',
        l.stream,
        if(count(DISTINCT l.pid) OVER (PARTITION BY l.track) > 1, concat(' of ', l.pid), '')
    ) AS row_name,
    l.kind,
    l.name,
    l.start_ns,
    l.end_ns - l.start_ns AS dur_ns,
    0 AS depth,
    true AS nested,
    l.pid,
    l.correlation_id,
    l.tid AS api_tid,
    l.api_start_ns,
    NULL::VARCHAR AS detail
FROM _placed_launches AS l
UNION ALL
SELECT
    t.report_id,
    concat('GPU ', t.device),
    'Idle, by cause',
    'idle',
    g.cause,
    g.start_ns,
    g.dur_ns,
    0,
    true,
    NULL,
    NULL,
    NULL,
    NULL,
    concat_ws(', ', l.name, l.api_name, l.nvtx_range)
FROM _gaps AS g
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
UNION ALL
SELECT
    report_id,
    concat('Process ', pid),
    concat('Thread ', tid, ' CUDA'),
    'api',
    name,
    start_ns,
    end_ns - start_ns,
    0,
    true,
    pid, correlation_id, NULL, NULL, NULL
FROM nsys_api_calls
WHERE end_ns IS NOT NULL
UNION ALL
SELECT
    report_id,
    concat('Process ', pid),
    concat('Thread ', tid, ' NVTX', ' ' || domain),
    if(style = 'Mark', 'mark', 'range'),
    name,
    start_ns,
    coalesce(dur_ns, 0),
    0,
    style = 'PushPop',
    pid,
    NULL,
    NULL,
    NULL,
    NULL
FROM nsys_nvtx_ranges
WHERE dur_ns IS NOT NULL OR style = 'Mark'
UNION ALL
SELECT
    report_id,
    concat('Process ', pid),
    concat('Thread ', tid, ' stacks'),
    'frame',
    name,
    start_ns,
    dur_ns,
    depth,
    true,
    pid,
    NULL,
    NULL,
    NULL,
    place
FROM _frame_slices;
