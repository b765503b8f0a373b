-- What 'perfpipe try' measured of the techniques that recommendations list: for each report and technique,
-- the lever that carried it out in the latest trial of the program that launched one. A lever that saves time
-- without changing the results comes before other levers. A lever that was confirmed alone on fresh launches
-- comes first, with the figures of the confirmation.
--
-- report_id VARCHAR: report
-- technique VARCHAR: key of the technique in the knowledge base
-- trial_id VARCHAR: trial
-- lever VARCHAR: name of the lever
-- unit VARCHAR: what was timed: step, token, call, iteration or launch
-- gain_pct DOUBLE: time saved, % of the unchanged program's time of a unit; negative if slower; NULL if
--   nothing was measured
-- low_pct DOUBLE: low end of the gain's interval, %
-- high_pct DOUBLE: high end of the gain's interval, %
-- verdict VARCHAR: as in trials
-- why VARCHAR: reason for the verdict
-- results VARCHAR: results compared with those of the unchanged program, as in trials
-- results_why VARCHAR: what differs in the results
-- helps BOOLEAN: whether the lever saves time and its results are equal: identical, within_scatter or
--   within_tolerance
CREATE VIEW tried_techniques AS
WITH launched AS (
    SELECT
        r.report_id,
        t.technique,
        t.trial_id,
        r.tried_at,
        t.lever,
        t.unit,
        if(s.lever IS NULL, t.gain_pct, s.gain_pct) AS gain_pct,
        if(s.lever IS NULL, t.low_pct, s.low_pct) AS low_pct,
        if(s.lever IS NULL, t.high_pct, s.high_pct) AS high_pct,
        coalesce(s.verdict, t.verdict) AS verdict,
        t.why,
        s.lever IS NOT NULL AS confirmed,
        coalesce(s.results, t.results) AS results,
        if(s.lever IS NULL, t.results_why, s.results_why) AS results_why
    FROM _report_trials AS r
    JOIN trials AS t USING (trial_id)
    LEFT JOIN trials AS s ON s.trial_id = t.trial_id AND s.kind = 'stack' AND s.lever = t.lever
    WHERE t.kind = 'lever' AND t.launches > 0 AND t.technique IS NOT NULL
)
SELECT
    report_id, technique, trial_id, lever, unit, gain_pct, low_pct, high_pct,
    verdict, why, results, results_why,
    verdict = 'gain' AND results IN ('identical', 'within_scatter', 'within_tolerance') AS helps
FROM launched
QUALIFY row_number() OVER (
    PARTITION BY report_id, technique
    ORDER BY
        tried_at DESC, trial_id DESC, confirmed DESC, helps DESC, verdict = 'gain' DESC,
        gain_pct DESC NULLS LAST, lever
) = 1
ORDER BY report_id, technique;
