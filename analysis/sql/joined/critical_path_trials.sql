-- Replays compared with trials: what a lever of 'perfpipe try' gained in the program of a report, and what
-- the replay of the report's steps saves if the part that the lever's finding is about takes no time. A lever
-- that gains more changes other parts, too, or the replay is wrong for this program.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- trial_id VARCHAR: trial
-- lever VARCHAR: name of the lever
-- technique VARCHAR: technique that the lever carries out
-- finding VARCHAR: finding that recommends the technique, as in trials
-- category VARCHAR: part that takes no time in the replay, as in critical_path_gains
-- replayed_pct DOUBLE: time that the replay saves, % of the step
-- gain_pct DOUBLE: time that the lever saved, % of a unit of the unchanged program
-- low_pct DOUBLE: low end of the gain's interval, %
-- high_pct DOUBLE: high end of the gain's interval, %
-- within BOOLEAN: whether the low end of the gain is at most replayed_pct
CREATE VIEW critical_path_trials AS
WITH measured AS (
    SELECT
        *,
        CASE
            WHEN finding IN ('launch_overhead', 'host', 'loading', 'sync', 'input') THEN 'host work'
            WHEN finding IN ('communication', 'transfer') THEN finding
            WHEN finding = 'ranks_wait' THEN 'communication'
            WHEN finding IN ('compute', 'single_precision', 'few_blocks', 'narrow_blocks') THEN 'compute'
        END AS category,
        coalesce(steps_gain_pct, gain_pct) AS own_pct,
        if(steps_gain_pct IS NULL, low_pct, steps_low_pct) AS own_low_pct,
        if(steps_gain_pct IS NULL, high_pct, steps_high_pct) AS own_high_pct
    FROM trials
    -- A whole launch is more than its steps.
    WHERE kind = 'lever' AND (unit != 'launch' OR steps_gain_pct IS NOT NULL)
)
SELECT
    g.report_id,
    g.device,
    t.trial_id,
    t.lever,
    t.technique,
    t.finding,
    t.category,
    g.gain_pct AS replayed_pct,
    t.own_pct AS gain_pct,
    t.own_low_pct AS low_pct,
    t.own_high_pct AS high_pct,
    t.own_low_pct <= g.gain_pct AS within
FROM critical_path_gains AS g
JOIN _report_trials AS r USING (report_id)
JOIN measured AS t ON t.trial_id = r.trial_id AND t.category = g.category
WHERE g.name IS NULL AND g.on_rank IS NULL AND t.own_pct IS NOT NULL
ORDER BY g.report_id, g.device, t.trial_id, gain_pct DESC, t.lever;
