-- Where the idle time of each GPU occurs, longest first: the call, the range or the other thread that was
-- active for at least half of the time before the next launch, else the next operation. Only intervals longer
-- than a launch gap have a name.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: order by time, from 1 for the most
-- cause VARCHAR: cause of the largest part of the interval, as a category of gpu_time_budget
-- kind VARCHAR: kind of the named activity: CUDA call, range (except step ranges), OS call, range of another
--   thread, OS call of another thread, or next operation; the first that applies is used, and waiting OS
--   calls come after activity of other threads; NULL if the interval is short
-- name VARCHAR: name of the activity, with numbers in range names replaced by *; NULL if the interval is
--   short
-- nvtx_range VARCHAR: innermost range of the launching thread, with numbers replaced by *
-- count BIGINT: number of intervals
-- time_ns BIGINT: total length of the intervals, ns
-- share_pct DOUBLE: share of the GPU's idle time, %
CREATE VIEW idle_causes AS
WITH sums AS (
    SELECT track, cause, kind, name, nvtx_range, count(*) AS count, sum(dur_ns) AS ns
    FROM _gap_causes
    GROUP BY ALL
    UNION ALL
    SELECT g.track, g.cause, NULL, NULL, NULL, count(*), sum(g.dur_ns)
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    ANTI JOIN _gap_names AS n USING (track, op_id)
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
