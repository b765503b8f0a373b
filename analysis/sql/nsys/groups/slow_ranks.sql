-- How late each rank is over the steps, and how its lateness develops (rank_lateness). Lateness of less than
-- 3 % of the median step is noise and does not count.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- steps BIGINT: number of steps, also of those that are not analyzed because they differ from the others
-- late_steps BIGINT: number of steps in which the rank delays the others
-- late_ns BIGINT: lateness summed over the steps, ns
-- steps_pct DOUBLE: late_ns as a percentage of the time of the steps
-- first_ns DOUBLE: mean lateness in the first third of the steps, ns
-- last_ns DOUBLE: mean lateness in the last third of the steps, ns
-- longest_ns BIGINT: largest lateness in a step, ns
-- pattern VARCHAR: constant, growing, bursts (few steps have most of the lateness) or irregular; NULL if the
--   rank is never late or fewer than 8 steps were captured
CREATE VIEW slow_ranks AS
WITH counted AS (
    SELECT
        * REPLACE (
            if(
                late_ns >= threshold('lateness.late_step_pct') / 100 * median(step_ns) OVER own, late_ns, 0
            ) AS late_ns
        )
    FROM rank_lateness
    WINDOW own AS (PARTITION BY job, rank, report_id, device)
),
ordered AS (
    SELECT
        *,
        row_number() OVER own AS nth,
        count(*) OVER (PARTITION BY job, rank, report_id, device) AS steps,
        row_number() OVER (PARTITION BY job, rank, report_id, device ORDER BY late_ns DESC, step) AS place
    FROM counted
    WINDOW own AS (PARTITION BY job, rank, report_id, device ORDER BY step)
),
sums AS (
    SELECT
        job,
        rank,
        report_id,
        device,
        any_value(steps) AS steps,
        count(*) FILTER (late_ns > 0) AS late_steps,
        sum(late_ns)::BIGINT AS late_ns,
        sum(step_ns)::BIGINT AS step_ns,
        max(late_ns) AS longest_ns,
        sum(late_ns) FILTER (nth <= steps // 3) / nullif(count(*) FILTER (nth <= steps // 3), 0) AS first_ns,
        sum(late_ns) FILTER (nth > steps // 3 AND nth <= steps - steps // 3)
            / nullif(count(*) FILTER (nth > steps // 3 AND nth <= steps - steps // 3), 0) AS middle_ns,
        sum(late_ns) FILTER (nth > steps - steps // 3)
            / nullif(count(*) FILTER (nth > steps - steps // 3), 0) AS last_ns,
        coalesce(sum(late_ns) FILTER (place <= threshold('lateness.burst_steps') * steps), 0) AS burst_ns,
        median(late_ns) AS median_ns
    FROM ordered
    GROUP BY job, rank, report_id, device
)
SELECT
    s.job,
    s.rank,
    s.report_id,
    s.device,
    s.steps,
    s.late_steps,
    s.late_ns,
    100.0 * s.late_ns / nullif(s.step_ns, 0) AS steps_pct,
    s.first_ns,
    s.last_ns,
    s.longest_ns,
    CASE
        WHEN s.late_ns = 0 OR s.steps < threshold('lateness.least_steps') THEN NULL
        WHEN s.burst_ns >= threshold('lateness.burst_share') * s.late_ns THEN 'bursts'
        WHEN s.first_ns < s.middle_ns AND s.middle_ns < s.last_ns
            AND s.last_ns >= threshold('lateness.growth') * s.first_ns THEN 'growing'
        WHEN s.median_ns * s.steps >= threshold('lateness.constant_share') * s.late_ns THEN 'constant'
        ELSE 'irregular'
    END AS pattern
FROM sums AS s
ORDER BY s.job, s.rank;
