-- Loops of each process and their roles. Ranges that are steps take precedence over loops of launches; with
-- --step, the chosen loop is the step. A loop with almost none of the GPU's work is not used.
-- @materialize
CREATE VIEW _loops AS
WITH RECURSIVE every_range AS (
    SELECT report_id, pid, start_ns FROM _steps
    UNION ALL
    SELECT report_id, pid, start_ns FROM _repeated_ranges
),
ranges AS (
    SELECT report_id, pid, count(*) AS ranges
    FROM every_range
    GROUP BY report_id, pid
),
-- How often a loop repeats in those iterations of an engine that it is part of. The rate of the requests
-- changes how many prefills and decodes there are, and so how often their layers repeat in all; it does not
-- change how often layers repeat within an iteration.
repeated AS (
    SELECT report_id, pid, loop, max(times) AS times
    FROM (
        SELECT s.report_id, s.pid, s.device, s.loop, sum(s.repeats) / count(DISTINCT r.start_ns) AS times
        FROM (FROM launch_steps SEMI JOIN _engines USING (report_id, pid)) AS s
        ASOF JOIN every_range AS r
            ON r.report_id = s.report_id AND r.pid = s.pid AND r.start_ns <= s.host_start_ns
        GROUP BY s.report_id, s.pid, s.device, s.loop
    )
    GROUP BY report_id, pid, loop
),
-- Reports of older versions have iterations of loops that are not nested: the loops with the period of the
-- longest loop are the steps.
older AS (
    SELECT
        report_id, pid, device, loop, any_value(period // repeats) AS period, sum(repeats) AS iterations,
        count(*) * median(end_ns - start_ns) AS time_ns
    FROM (FROM launch_steps ANTI JOIN launch_loops USING (report_id))
    GROUP BY report_id, pid, device, loop
),
known AS (
    FROM launch_loops
    UNION ALL BY NAME
    SELECT DISTINCT ON (report_id, pid, loop)
        report_id,
        pid,
        loop,
        1 AS level,
        if(
            period = first_value(period) OVER (
                PARTITION BY report_id, pid, device ORDER BY time_ns DESC, period
            ),
            'step', 'other'
        ) AS role,
        'period' AS source,
        iterations::BIGINT AS iterations,
        period::DOUBLE AS launches,
        'read by an older version of perfpipe' AS why
    FROM older
),
around AS (
    SELECT report_id, pid, parent AS loop
    FROM launch_loops
    WHERE loop = step_loop() AND parent IS NOT NULL
    UNION ALL
    SELECT l.report_id, l.pid, l.parent
    FROM around AS a
    JOIN launch_loops AS l USING (report_id, pid, loop)
    WHERE l.parent IS NOT NULL
),
inside AS (
    SELECT report_id, pid, loop
    FROM launch_loops
    WHERE parent = step_loop()
    UNION ALL
    SELECT l.report_id, l.pid, l.loop
    FROM inside AS i
    JOIN launch_loops AS l ON l.report_id = i.report_id AND l.pid = i.pid AND l.parent = i.loop
),
roles AS (
    SELECT
        l.*,
        r.ranges,
        m.why AS of_modules,
        -- An iteration of an engine contains the layers, so their number in all iterations says nothing.
        if(l.evidence IS NULL OR (e.times IS NOT NULL AND l.evidence = 'count'), 'layer', 'inner') AS part,
        CASE
            WHEN l.role = 'trial' AND l.loop IS DISTINCT FROM step_loop() THEN 'trial'
            WHEN e.times >= 2 THEN part
            -- A loop may have an incomplete iteration at each end of the ranges.
            WHEN abs(l.iterations - r.ranges) <= 1 THEN 'step'
            -- An engine has iterations of several kinds, and a loop may consist of one kind.
            WHEN e.times IS NOT NULL THEN 'other'
            WHEN l.iterations > r.ranges THEN part
            WHEN r.ranges IS NOT NULL THEN 'outer'
            WHEN step_loop() IS NULL AND of_modules IS NOT NULL THEN 'layer'
            WHEN step_loop() IS NULL THEN l.role
            WHEN l.loop = step_loop() THEN 'step'
            WHEN (l.report_id, l.pid, l.loop) IN (FROM around) THEN 'outer'
            WHEN (l.report_id, l.pid, l.loop) IN (FROM inside) THEN part
            ELSE 'other'
        END AS here
    FROM known AS l
    LEFT JOIN ranges AS r USING (report_id, pid)
    LEFT JOIN repeated AS e USING (report_id, pid, loop)
    LEFT JOIN _module_loops AS m USING (report_id, pid, loop)
)
SELECT
    * EXCLUDE (role, part, here, why, of_modules),
    role AS found_role,
    here AS role,
    CASE
        WHEN ranges IS NOT NULL AND here = 'step' THEN 'as many iterations as ranges of steps'
        WHEN iterations < ranges AND here IN ('outer', 'other') THEN 'fewer iterations than ranges of steps'
        WHEN ranges IS NOT NULL AND here != 'trial' THEN 'repeats within the ranges of steps'
        WHEN here = role THEN why
        WHEN here = 'layer' AND of_modules IS NOT NULL THEN of_modules
        WHEN here = 'step' THEN 'chosen with --step'
        WHEN here = 'outer' THEN 'contains the chosen loop'
        WHEN here = 'other' THEN 'repeats outside the chosen loop'
        ELSE 'repeats within the chosen loop'
    END AS why,
    coalesce(100 * share >= threshold('timeline.loop_work_pct'), true) AS works,
    ranges IS NULL AND here = 'step' AND (step_loop() IS NOT NULL OR works) AS main,
    ranges IS NULL AND step_loop() IS NULL AND parent IS NULL AND here IN ('other', 'trial')
        AND works AS beside
FROM roles;
