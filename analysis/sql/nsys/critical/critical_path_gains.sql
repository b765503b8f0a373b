-- What a shorter part of the steps would save. Up to eight consecutive analyzed steps around the typical step
-- are replayed with the same dependencies: each operation and call begins as soon as all that it waits for
-- has happened. Assumptions: clocks do not change, the host takes as long as under the profiler, and work at
-- the same time does not slow each other down more or less than before. 'perfpipe project --shorter' replays
-- other parts and percentages.
--
-- job VARCHAR: job, as in job_ranks; the report_id if the report's processes do not communicate
-- report_id VARCHAR: report of the GPU that the steps belong to
-- device BIGINT: physical GPU number of this GPU
-- category VARCHAR: category of the part, as in critical_path; 'host work' is host, launch_api and cuda_call
--   together
-- name VARCHAR: kernel or operation, on all ranks; NULL for the whole category
-- on_rank BIGINT: rank whose host work is shorter; NULL for that of all ranks
-- steps BIGINT: number of steps that are averaged, the later half of those that are replayed
-- step_ns DOUBLE: mean step time as recorded, ns
-- gain10_pct DOUBLE: time saved if the part is 10 % shorter, % of step_ns
-- gain50_pct DOUBLE: time saved if the part is 50 % shorter, % of step_ns
-- gain_pct DOUBLE: time saved if the part takes no time, % of step_ns
-- new_step_ns DOUBLE: mean step time if the part takes no time, ns
CREATE VIEW critical_path_gains AS
SELECT
    g.job,
    s.report_id,
    s.device,
    g.category,
    g.name,
    g.rank AS on_rank,
    g.steps,
    g.step_ns,
    100.0 * (g.step_ns - g.tenth_ns) / nullif(g.step_ns, 0) AS gain10_pct,
    100.0 * (g.step_ns - g.half_ns) / nullif(g.step_ns, 0) AS gain50_pct,
    100.0 * (g.step_ns - g.none_ns) / nullif(g.step_ns, 0) AS gain_pct,
    g.none_ns AS new_step_ns
FROM _path_gains AS g
JOIN _path_steps AS s ON s.job = g.job AND s.role = 'median'
ORDER BY g.job, gain_pct DESC, g.category, g.name, g.rank;
