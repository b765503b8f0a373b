-- Statistics of durations by name as nsys's summaries define them: rounded to 0.1, the sample standard
-- deviation (n - 1; 0 if there is only one value), and the share of the report's total of the same kind.
-- @materialize
CREATE VIEW _duration_stats AS
WITH sums AS (
    SELECT
        report_id,
        kind,
        -- Joined once per range, not per instance.
        CASE WHEN kind IN ('PushPop', 'StartEnd') THEN nsys_range_name(domain, name) ELSE name END AS name,
        sum(dur_ns)::BIGINT AS total_time_ns,
        count(*) AS instances,
        round_tenth(avg(dur_ns)) AS avg_ns,
        round_tenth(median(dur_ns)) AS med_ns,
        min(dur_ns) AS min_ns,
        max(dur_ns) AS max_ns,
        nsys_stddev(dur_ns) AS stddev_ns
    FROM _durations
    GROUP BY report_id, kind, domain, _durations.name
)
SELECT
    *,
    round_tenth(
        100.0 * total_time_ns / nullif(sum(total_time_ns) OVER (PARTITION BY report_id, kind), 0)
    ) AS time_pct
FROM sums;
