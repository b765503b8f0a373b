-- GPUs whose rank waits for other ranks in collectives, and the rank that most often arrives last.
-- @materialize
CREATE VIEW _rank_waits AS
WITH stragglers AS (
    SELECT job, arg_max(rank, (last, -rank)) AS last_rank, max(last_pct) AS last_pct
    FROM rank_skew
    GROUP BY job
)
SELECT
    k.report_id,
    k.device,
    'communication' AS bound,
    any_value(k.waiting_pct ORDER BY k.job, k.rank) AS waiting_pct,
    any_value(100.0 * k.start_ns / nullif(k.waiting_ns, 0) ORDER BY k.job, k.rank) AS start_pct,
    any_value(k.rank ORDER BY k.job, k.rank) AS own_rank,
    any_value(s.last_rank ORDER BY k.job, k.rank) AS last_rank,
    any_value(s.last_pct ORDER BY k.job, k.rank) AS last_pct
FROM rank_skew AS k
JOIN stragglers AS s USING (job)
WHERE k.window_pct >= threshold('timeline.contributor_pct')
    OR mostly_waits(k.waiting_pct, k.start_ns, k.waiting_ns)
GROUP BY k.report_id, k.device;
