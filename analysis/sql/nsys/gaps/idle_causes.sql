-- Idle time of each GPU by what the host was doing, longest first. An interval is assigned to the call, range
-- or other thread that was active for at least half of the time before the next launch; if there is none, the
-- interval is assigned to the next operation. Intervals that are not longer than a launch gap have no name.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank by time; 1 is the longest
-- cause VARCHAR: cause that accounts for the largest part of the interval, as a category of gpu_time_budget
-- kind VARCHAR: kind of activity: ordering call (what the next operation waits behind, for device_wait), CUDA
--   call, range (except step ranges), OS call, range of another thread, OS
--   call of another thread, or next operation. The first kind in this list that applies is used, but OS calls
--   that wait come after the activity of other threads. NULL if the interval is not longer than a launch gap
-- name VARCHAR: name of the activity, with numbers in range names replaced by *; NULL if the interval is
--   not longer than a launch gap
-- nvtx_range VARCHAR: innermost NVTX range on the launching thread, with counters replaced by *
-- count BIGINT: number of intervals
-- time_ns BIGINT: total length of the intervals, ns
-- share_pct DOUBLE: percentage of the GPU's idle time
CREATE VIEW idle_causes AS
WITH sums AS (
    SELECT track, cause, kind, name, nvtx_range, count(*) AS count, sum(dur_ns) AS ns
    FROM _gap_causes
    GROUP BY ALL
    UNION ALL
    SELECT g.track, g.cause, NULL, NULL, NULL, count(*), sum(g.dur_ns)
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    ANTI JOIN _gap_causes AS n USING (track, op_id)
    GROUP BY g.track, g.cause
),
added AS (
    SELECT track, cause, kind, name, nvtx_range, sum(count)::BIGINT AS count, sum(ns)::BIGINT AS ns
    FROM sums
    GROUP BY ALL
)
SELECT
    g.report_id,
    g.device,
    row_number() OVER (
        PARTITION BY a.track ORDER BY a.ns DESC, a.cause, a.kind, a.name, a.nvtx_range
    ) AS rank,
    a.cause,
    a.kind,
    a.name,
    a.nvtx_range,
    a.count,
    a.ns AS time_ns,
    100.0 * a.ns / sum(a.ns) OVER (PARTITION BY a.track) AS share_pct
FROM added AS a
JOIN _gpus AS g USING (track)
ORDER BY g.report_id, g.device, rank;
