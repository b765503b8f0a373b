-- Kernels of the timelines that compute most of the time, with their share of the time of all these, %.
CREATE VIEW _kernels_to_profile AS
WITH sums AS (
    SELECT k.name, sum(k.dur_ns)::BIGINT AS time_ns
    FROM nsys_kernels AS k
    SEMI JOIN (SELECT report_id FROM timeline_bottleneck WHERE bound = 'compute') USING (report_id)
    GROUP BY k.name
)
SELECT
    row_number() OVER (ORDER BY time_ns DESC, name) AS rank,
    name,
    100.0 * time_ns / sum(time_ns) OVER () AS share_pct
FROM sums
WHERE time_ns > 0
ORDER BY rank;
