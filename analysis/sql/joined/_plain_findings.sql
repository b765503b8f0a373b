-- Findings about each GPU's time, as shares of a step without the profiler where its time is known. A share
-- that is only large under the profiler is not a finding.
CREATE VIEW _plain_findings AS
WITH scaled AS (
    SELECT
        f.*,
        plain_scale(f.bound, t.work_scale, t.communication_scale, t.idle_scale) AS scale,
        coalesce(t.idle_scale, 1) AS idle_scale
    FROM timeline_findings AS f
    LEFT JOIN step_times AS t ON t.report_id = f.report_id AND t.device IS NOT DISTINCT FROM f.device
)
SELECT
    * EXCLUDE (scale, idle_scale) REPLACE (
        share_pct * scale AS share_pct,
        if(gain_pct IS NULL, NULL, least(100, gain_pct * scale)) AS gain_pct,
        slow_pct * idle_scale AS slow_pct
    )
FROM scaled
-- Small copies to the host are a finding if they are frequent, too.
WHERE scale = 1 OR bound = 'readback' OR scaled.share_pct * scale >= contributor_pct(bound);
