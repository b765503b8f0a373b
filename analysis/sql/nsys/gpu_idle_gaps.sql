-- Idle intervals of each GPU, the longest first, with the cause of their largest part and what the host did.
-- Computed once.
--
-- report_id: report
-- device: GPU number of the machine
-- rank: 1 is the longest
-- start_ns: end of the operations before, ns
-- end_ns: start of the next operation, ns
-- dur_ns: length, ns
-- cause: largest part, by the categories of gpu_time_budget
-- before_ns: time before the launching call began, ns; NULL without a recorded call
-- launch_api_ns: time inside of the call, ns
-- queued_ns: time after it, ns
-- profiler_overhead_ns: time of the profiler itself, ns
-- next_name: operation that ended the gap
-- api_name: call that launched it
-- sync_name: synchronising call of that thread that lay in the gap; NULL without one
-- nvtx_range: innermost NVTX range of the launching call
-- os_call: operating-system call of that thread when the gap began; NULL where not traced
-- pid: process
-- tid: launching thread
CREATE VIEW gpu_idle_gaps AS
WITH gaps AS (
    SELECT
        t.report_id,
        t.device,
        g.*,
        row_number() OVER (PARTITION BY g.track ORDER BY g.dur_ns DESC, g.start_ns) AS rank,
        greatest(g.before_ns, g.launch_api_ns, g.queued_ns, g.profiler_overhead_ns, g.unattributed_ns) AS largest_ns
    FROM _gaps AS g
    JOIN (SELECT DISTINCT track, report_id, device FROM _tracks) AS t USING (track)
    WHERE g.window_id = 0
),
named AS (
    SELECT g.track, g.rank, min(l.name) AS name, min(l.api_name) AS api_name
    FROM gaps AS g
    JOIN launches AS l ON l.report_id = g.report_id AND l.start_ns = g.end_ns
        AND l.pid IS NOT DISTINCT FROM g.pid AND l.correlation_id IS NOT DISTINCT FROM g.correlation_id
    GROUP BY g.track, g.rank
),
ranges AS (
    SELECT c.report_id, c.pid, c.correlation_id, arg_max(nsys_range_name(r.domain, r.name), r.level) AS nvtx_range
    FROM nsys_call_ranges AS c
    JOIN nsys_nvtx_ranges AS r USING (report_id, range_id)
    GROUP BY c.report_id, c.pid, c.correlation_id
),
os AS (
    SELECT report_id, pid, tid, start_ns, end_ns, name
    FROM nsys_osrt
    WHERE coalesce(nesting_level, 0) = 0
)
SELECT
    g.report_id,
    g.device,
    g.rank,
    g.start_ns,
    g.end_ns,
    g.dur_ns,
    CASE g.largest_ns
        WHEN g.unattributed_ns THEN 'unattributed'
        WHEN g.before_ns THEN g.before_cause
        WHEN g.launch_api_ns THEN 'launch_api'
        WHEN g.queued_ns THEN 'queued'
        ELSE 'profiler_overhead'
    END AS cause,
    CASE WHEN g.before_cause IS NOT NULL THEN g.before_ns END AS before_ns,
    CASE WHEN g.before_cause IS NOT NULL THEN g.launch_api_ns END AS launch_api_ns,
    g.queued_ns,
    g.profiler_overhead_ns,
    n.name AS next_name,
    n.api_name,
    g.sync_name,
    r.nvtx_range,
    CASE WHEN o.end_ns > g.start_ns THEN o.name END AS os_call,
    g.pid,
    g.tid
FROM gaps AS g
LEFT JOIN named AS n ON n.track = g.track AND n.rank = g.rank
LEFT JOIN ranges AS r ON r.report_id = g.report_id AND r.pid = g.pid AND r.correlation_id = g.correlation_id
ASOF LEFT JOIN os AS o ON o.report_id = g.report_id AND o.pid = g.pid AND o.tid = g.tid AND o.start_ns <= g.end_ns
ORDER BY g.report_id, g.device, g.rank;
