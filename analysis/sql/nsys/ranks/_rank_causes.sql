-- Ranks that wait for another rank in collectives after the first one: the rank that they wait for, and the
-- cause, which is the category with the most extra time of that rank.
-- @materialize
CREATE VIEW _rank_causes AS
WITH last AS (
    SELECT job, rank, report_id, device, last_pct
    FROM rank_skew
    WHERE last > 0
    QUALIFY row_number() OVER (PARTITION BY job ORDER BY last DESC, rank) = 1
),
waiting AS (
    SELECT k.job, k.rank, k.report_id, k.device, l.rank AS last_rank, l.last_pct,
        l.report_id AS last_report, l.device AS last_device
    FROM rank_skew AS k
    JOIN last AS l USING (job)
    WHERE l.rank != k.rank
        AND (
            k.window_pct * (1 - k.start_ns / nullif(k.waiting_ns, 0)) >= threshold('timeline.contributor_pct')
            OR mostly_waits(k.waiting_pct, k.start_ns, k.waiting_ns)
        )
),
bounds AS (
    SELECT report_id, device, timeline_bound(category) AS bound, sum(time_ns) AS ns
    FROM gpu_time_budget
    WHERE category NOT IN ('communication', 'edge', 'profiler_overhead', 'unattributed')
    GROUP BY report_id, device, timeline_bound(category)
),
excess AS (
    SELECT w.*, theirs.bound, (theirs.ns - own.ns)::BIGINT AS excess_ns
    FROM waiting AS w
    JOIN bounds AS own USING (report_id, device)
    JOIN bounds AS theirs
        ON theirs.report_id = w.last_report AND theirs.device = w.last_device AND theirs.bound = own.bound
    QUALIFY row_number() OVER (PARTITION BY w.job, w.rank ORDER BY theirs.ns - own.ns DESC, theirs.bound) = 1
)
SELECT
    job,
    rank,
    report_id,
    device,
    last_rank,
    last_pct,
    last_report,
    last_device,
    CASE WHEN excess_ns > 0 THEN bound END AS cause,
    CASE WHEN excess_ns > 0 THEN excess_ns END AS excess_ns
FROM excess;
