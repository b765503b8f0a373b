-- First launch that ncu considers: the first one of the window, or a later one of its first step if the
-- launches after it represent clearly more time.
CREATE VIEW _plan_starts AS
WITH totals AS (
    SELECT w.report_id, sum(w.time_ns) AS all_ns
    FROM _window_kernels AS w
    JOIN _profiled_process AS p
        ON p.report_id = w.report_id
            AND p.pid IS NOT DISTINCT FROM w.pid
            AND p.cuda_device IS NOT DISTINCT FROM w.cuda_device
    WHERE NOT w.communication
    GROUP BY w.report_id
),
-- A launch is the first of its configuration for every start after the previous launch of the configuration.
borders AS (
    SELECT report_id, last_place, earlier_place + 1 AS start_place, gain_ns AS change_ns
    FROM _plan_launches
    WHERE inside
    UNION ALL
    SELECT report_id, last_place, place + 1, -gain_ns
    FROM _plan_launches
    WHERE inside
),
changes AS (
    SELECT report_id, last_place, start_place, sum(change_ns)::BIGINT AS change_ns
    FROM borders
    GROUP BY report_id, last_place, start_place
),
gains AS (
    SELECT
        * EXCLUDE (change_ns),
        sum(change_ns) OVER (PARTITION BY report_id ORDER BY start_place ROWS UNBOUNDED PRECEDING) AS gain_ns
    FROM changes
),
possible AS (
    SELECT g.*, t.all_ns, max(g.gain_ns) OVER (PARTITION BY g.report_id) AS most_ns
    FROM gains AS g
    JOIN totals AS t USING (report_id)
    WHERE g.start_place <= g.last_place
)
SELECT report_id, min(start_place) AS start_place
FROM possible
WHERE 100.0 * (most_ns - gain_ns) <= threshold('plan.start_gain_pct') * all_ns
GROUP BY report_id;
