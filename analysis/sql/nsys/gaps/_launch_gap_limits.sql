-- Longest interval between launches on each GPU that counts as a launch gap. It is longer for a program with
-- generally long intervals, if the program launches often enough to measure them.
-- @materialize
CREATE VIEW _launch_gap_limits AS
SELECT
    track,
    least(
        threshold('timeline.launch_gap_most_ns'),
        greatest(
            threshold('timeline.launch_gap_ns'),
            threshold('timeline.launch_gap_medians')
            * CASE WHEN gaps >= threshold('timeline.launch_gap_many') THEN median_ns ELSE 0 END
        )
    ) AS limit_ns
FROM (
    SELECT
        track,
        count(*) FILTER (own_ns > 0 AND NOT drained) AS gaps,
        median(own_ns) FILTER (own_ns > 0 AND NOT drained) AS median_ns
    FROM _gap_parts
    GROUP BY track
);
