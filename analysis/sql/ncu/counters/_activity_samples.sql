-- SM activity of each launch, one row per PM sample. A sample is busy if its activity is at least half of the
-- plateau. Other samples come before all busy samples (ramp), between busy samples (bubble), or after all
-- busy samples (tail).
-- @materialize
CREATE VIEW _activity_samples AS
WITH plateaus AS (
    SELECT
        report_id,
        launch_id,
        count(*) AS samples,
        quantile_disc(value, threshold('series.plateau_quantile')) FILTER (WHERE value > 0) AS plateau
    FROM _series_samples
    WHERE unit = 'sm'
    GROUP BY report_id, launch_id
    HAVING count(*) >= threshold('series.min_samples')
),
judged AS (
    SELECT
        s.report_id,
        s.launch_id,
        s.at_ns,
        row_number() OVER w - 1 AS sample,
        p.samples,
        s.value / p.plateau AS share,
        s.value >= threshold('series.half_share') * p.plateau AS busy
    FROM _series_samples AS s
    JOIN plateaus AS p USING (report_id, launch_id)
    WHERE s.unit = 'sm'
    WINDOW w AS (PARTITION BY s.report_id, s.launch_id ORDER BY s.at_ns)
),
placed AS (
    SELECT
        *,
        coalesce(bool_or(busy) OVER (w ROWS UNBOUNDED PRECEDING), false) AS begun,
        coalesce(bool_or(busy) OVER (w ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), false) AS going
    FROM judged
    WINDOW w AS (PARTITION BY report_id, launch_id ORDER BY sample)
)
SELECT
    report_id,
    launch_id,
    at_ns,
    sample,
    samples,
    share,
    CASE
        WHEN busy THEN 'busy'
        WHEN NOT begun THEN 'ramp'
        WHEN going THEN 'bubble'
        ELSE 'tail'
    END AS state
FROM placed;
