-- All sources from which each process's steps could be derived, for comparison: the program's ranges,
-- torch.profiler's steps, and the loop of the launch sequence.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- source VARCHAR: source of the steps: step range, NVTX, ProfilerStep or period
-- used BOOLEAN: whether `steps` uses this source
-- steps BIGINT: number of steps; for a period, the number of iterations of the loop that takes the most
--   time
-- step_ns DOUBLE: median time on the GPU from one step's start to the next step's start, ns
-- period_launches BIGINT: number of launches per iteration; NULL for ranges
-- loop BIGINT: number of the loop in `loops`; NULL for ranges
-- match DOUBLE: fraction (0-1) of an iteration's launches that match those of neighboring iterations, median
--   over all iterations; NULL for ranges
-- boundary VARCHAR: event at which each iteration begins: idle, optimizer, host or launch; NULL for ranges
-- agrees BOOLEAN: whether the number of steps from this source differs by at most one from the number from
--   the source in use; NULL for the source in use
CREATE VIEW step_sources AS
WITH periods AS (
    SELECT
        s.report_id, s.pid, s.device, s.loop, any_value(s.period // s.repeats) AS period,
        any_value(s.boundary) AS boundary, median(s.match) AS match, sum(s.repeats) AS steps,
        median(s.distance_ns / s.repeats) AS step_ns
    FROM _iteration_times AS s
    JOIN _loops AS l USING (report_id, pid, loop)
    WHERE if(step_loop() IS NULL, l.found_role = 'step', l.main)
    GROUP BY s.report_id, s.pid, s.device, s.loop
),
found AS (
    SELECT
        track, report_id, pid, source, count(*) AS steps, median(end_ns - start_ns) AS step_ns,
        NULL::BIGINT AS period_launches, NULL::BIGINT AS loop, NULL::DOUBLE AS match,
        NULL::VARCHAR AS boundary, true AS used
    FROM _process_steps
    WHERE source != 'period'
    GROUP BY track, report_id, pid, source
    UNION ALL
    SELECT
        t.track, l.report_id, l.pid, 'period', l.steps, l.step_ns, l.period, l.loop,
        l.match, l.boundary,
        NOT EXISTS (
            FROM _process_steps AS p WHERE p.track = t.track AND p.pid = l.pid AND p.source != 'period'
        )
    FROM periods AS l
    JOIN _tracks AS t
        ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device IS NOT DISTINCT FROM l.device
)
SELECT
    g.report_id,
    g.device,
    f.pid AS process_id,
    f.source,
    f.used,
    f.steps::BIGINT AS steps,
    f.step_ns,
    f.period_launches,
    f.loop,
    f.match,
    f.boundary,
    CASE
        WHEN NOT f.used
            THEN abs(f.steps - max(f.steps) FILTER (f.used) OVER (PARTITION BY f.track, f.pid)) <= 1
    END AS agrees
FROM found AS f
JOIN _gpus AS g USING (track)
ORDER BY g.report_id, g.device, f.pid, f.used DESC, f.source;
