-- Idle intervals of each GPU, longest first. Each interval is labeled with the cause that accounts for the
-- largest part of its duration and with what the host was doing at the time.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by length; 1 is the longest
-- start_ns BIGINT: end of the preceding operation, ns
-- end_ns BIGINT: start of the next operation, ns
-- dur_ns BIGINT: length of the interval, ns
-- cause VARCHAR: cause that accounts for the largest part of the interval, as a category of gpu_time_budget
-- before_ns BIGINT: idle time before the launching call began, ns; NULL if no call was recorded, or if the
--   call returned before the interval began
-- wait_ns BIGINT: part of before_ns spent in calls that wait for the GPU, ns
-- loading_ns BIGINT: part of before_ns spent in calls that load modules or libraries, ns
-- launch_api_ns BIGINT: idle time during the launching call, ns; NULL in the same cases as before_ns
-- queued_ns BIGINT: idle time after the launching call, ns; NULL in the same cases as before_ns
-- profiler_overhead_ns BIGINT: profiler overhead during the interval, ns
-- next_name VARCHAR: operation that ended the interval
-- api_name VARCHAR: API call that launched next_name
-- sync_name VARCHAR: synchronizing call that the launching thread made during the interval; NULL if there
--   is none
-- nvtx_range VARCHAR: innermost NVTX range that encloses the launching call
-- nvtx_path VARCHAR: nvtx_range and up to two enclosing ranges, outermost first; only for intervals longer
--   than a launch gap
-- during_range VARCHAR: innermost NVTX range that was open on the launching thread for at least half of
--   before_ns; this column, api_call, os_call and other_thread are set only if before_ns is longer than a
--   launch gap
-- api_call VARCHAR: CUDA call in which the launching thread spent the largest part of before_ns; NULL if no
--   call takes at least 20 us
-- os_call VARCHAR: OS call in which the launching thread spent the largest part of before_ns; NULL if no call
--   takes at least 20 us, or if OS calls were not traced
-- other_thread VARCHAR: range, or OS call other than a wait, that covers at least half of before_ns on
--   another thread of the process
-- pid BIGINT: process id
-- tid BIGINT: thread id of the launching thread
CREATE VIEW gpu_idle_gaps AS
WITH ranked AS (
    -- Ranked before names are joined, since a window sorts all columns of its rows.
    SELECT
        track,
        op_id,
        start_ns,
        dur_ns,
        wait_ns + loading_ns + own_ns AS before_ns,
        wait_ns,
        loading_ns,
        launch_api_ns,
        rest_ns,
        called,
        profiler_overhead_ns,
        cause,
        sync_name,
        row_number() OVER (PARTITION BY track ORDER BY dur_ns DESC, start_ns) AS rank
    FROM _gaps
    SEMI JOIN _analysed USING (track, window_id)
),
long_gaps AS MATERIALIZED (
    SELECT g.track, g.op_id, l.report_id, l.range_id
    FROM _gaps AS g
    JOIN _gpus AS t USING (track)
    JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
    WHERE g.dur_ns > threshold('timeline.launch_gap_ns') AND l.range_id IS NOT NULL
),
-- Enclosing ranges with one lookup each: recursion or joins would read or sort all ranges per level.
innermost AS MATERIALIZED (
    SELECT DISTINCT report_id, range_id
    FROM long_gaps
),
first AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT range_id FROM innermost)
),
second AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT enclosing FROM first)
),
third AS MATERIALIZED (
    SELECT report_id, range_id, enclosing, name
    FROM nsys_nvtx_ranges
    WHERE range_id IN (SELECT enclosing FROM second)
),
outwards AS (
    SELECT
        i.report_id,
        i.range_id,
        concat_ws(' > ', CASE WHEN c.enclosing IS NOT NULL THEN '...' END, c.name, b.name, a.name) AS path
    FROM innermost AS i
    JOIN first AS a ON a.report_id = i.report_id AND a.range_id = i.range_id
    LEFT JOIN second AS b ON b.report_id = i.report_id AND b.range_id = a.enclosing
    LEFT JOIN third AS c ON c.report_id = i.report_id AND c.range_id = b.enclosing
),
-- NVTX ranges around the launching calls of operations that end idle intervals longer than a launch gap: the
-- innermost range and up to two outer ranges, outermost first.
gap_paths AS (
    SELECT g.track, g.op_id, o.path
    FROM long_gaps AS g
    JOIN outwards AS o USING (report_id, range_id)
)
SELECT
    t.report_id,
    t.device,
    g.rank,
    g.start_ns,
    g.start_ns + g.dur_ns AS end_ns,
    g.dur_ns,
    g.cause,
    CASE WHEN g.called THEN g.before_ns END AS before_ns,
    CASE WHEN g.called THEN g.wait_ns END AS wait_ns,
    CASE WHEN g.called THEN g.loading_ns END AS loading_ns,
    CASE WHEN g.called THEN g.launch_api_ns END AS launch_api_ns,
    CASE WHEN g.called THEN g.rest_ns END AS queued_ns,
    g.profiler_overhead_ns,
    l.name AS next_name,
    l.api_name,
    g.sync_name,
    l.nvtx_range,
    p.path AS nvtx_path,
    n.range_name AS during_range,
    n.api_name AS api_call,
    n.os_name AS os_call,
    n.other_name AS other_thread,
    l.pid,
    l.tid
FROM ranked AS g
JOIN _gpus AS t USING (track)
JOIN launches AS l ON l.report_id = t.report_id AND l.op_id = g.op_id
LEFT JOIN _gap_names AS n ON n.track = g.track AND n.op_id = g.op_id
LEFT JOIN gap_paths AS p ON p.track = g.track AND p.op_id = g.op_id
ORDER BY g.track, g.rank;
