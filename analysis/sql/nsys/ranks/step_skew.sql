-- Differences between a job's ranks in each step. A step takes as long as its slowest rank.
--
-- job VARCHAR: job, as in job_ranks
-- step VARCHAR: name of the step
-- step_index BIGINT: number of the step on each rank, from 1
-- ranks BIGINT: number of ranks that recorded this step
-- mean_ns DOUBLE: mean step duration across the ranks, ns
-- slowest_ns BIGINT: step duration on the slowest rank, ns
-- slowest_rank BIGINT: rank with the longest step duration
-- skew_ns BIGINT: difference between the longest and the shortest step duration, ns
-- busiest_rank BIGINT: rank that spends the most time outside communication and waiting; the other ranks
--   wait for this rank
-- busy_skew_ns BIGINT: difference between the busiest and the least busy rank in the time spent outside
--   communication and waiting, ns
CREATE VIEW step_skew AS
WITH own AS (
    SELECT report_id, device, process_id, step, step_index, any_value(step_ns) AS step_ns,
        any_value(step_ns) - sum(time_ns) FILTER (WHERE category IN ('communication', 'edge')) AS busy_ns
    FROM step_budget
    WHERE step_index IS NOT NULL
    GROUP BY report_id, device, process_id, step, step_index
)
SELECT
    r.job,
    s.step,
    s.step_index,
    count(*) AS ranks,
    avg(s.step_ns) AS mean_ns,
    max(s.step_ns) AS slowest_ns,
    arg_max(r.rank, (s.step_ns, -r.rank)) AS slowest_rank,
    max(s.step_ns) - min(s.step_ns) AS skew_ns,
    arg_max(r.rank, (s.busy_ns, -r.rank)) AS busiest_rank,
    (max(s.busy_ns) - min(s.busy_ns))::BIGINT AS busy_skew_ns
FROM own AS s
JOIN _job_ranks AS r ON r.report_id = s.report_id AND r.device = s.device AND r.pid = s.process_id
GROUP BY r.job, s.step, s.step_index
HAVING count(*) > 1
ORDER BY r.job, s.step_index, s.step;
