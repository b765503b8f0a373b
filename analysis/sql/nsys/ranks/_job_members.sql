-- Processes and GPUs that communicated, with their job: reports of one directory whose captures
-- overlap in time (clocks of machines may differ a little) are one job; a report whose start is
-- unknown is a job of its own.
-- @materialize
CREATE VIEW _job_members AS
WITH members AS (
    SELECT
        report_id,
        track,
        device,
        pid,
        min(start_ns) AS start_ns,
        max(end_ns) AS end_ns,
        count(*) AS collectives
    FROM _collectives
    GROUP BY report_id, track, device, pid
),
captures AS (
    SELECT
        r.report_id,
        r.directory,
        r.started_ns,
        r.started_ns + min(m.start_ns) AS start_ns,
        r.started_ns + max(m.end_ns) AS end_ns
    FROM members AS m
    JOIN reports AS r USING (report_id)
    GROUP BY r.report_id, r.directory, r.started_ns
),
islands AS (
    SELECT
        *,
        coalesce(
            start_ns - threshold('timeline.clock_slack_ns') <= max(end_ns) OVER (
                PARTITION BY directory
                ORDER BY start_ns, report_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            false
        ) AS joins
    FROM captures
),
numbered AS (
    SELECT
        *,
        count(if(NOT joins, 1, NULL)) OVER (PARTITION BY directory ORDER BY start_ns, report_id) AS island
    FROM islands
)
SELECT
    min(m.report_id) OVER (PARTITION BY n.directory, n.island) AS job,
    m.*,
    n.started_ns,
    row_number() OVER (
        PARTITION BY n.directory, n.island ORDER BY natural_order(r.source_name), m.report_id, m.device, m.pid
    ) - 1 AS place
FROM members AS m
JOIN numbered AS n USING (report_id)
JOIN reports AS r USING (report_id);
