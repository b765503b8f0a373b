-- The two XLA modules of each GPU's process that take longest to compile again and again in the analyzed
-- windows, in words. A compilation begins with the first range of a compiler after the previous compilation.
-- @materialize
CREATE VIEW _recompilations AS
WITH names AS (
    SELECT name FROM _names WHERE kind = 'range' AND is_compilation(name)
),
ranges AS (
    SELECT report_id, pid, start_ns
    FROM nsys_nvtx_ranges
    SEMI JOIN _compilations USING (report_id, pid)
    WHERE name IN (SELECT name FROM names)
),
follows AS (
    SELECT *, coalesce(lag(end_ns) OVER process, 0) AS after_ns
    FROM _compilations
    WINDOW process AS (PARTITION BY report_id, pid ORDER BY end_ns, start_ns)
),
begun AS (
    SELECT c.*, least(coalesce(r.start_ns, c.start_ns), c.start_ns) AS from_ns
    FROM follows AS c
    ASOF LEFT JOIN ranges AS r
        ON r.report_id = c.report_id AND r.pid = c.pid AND r.start_ns >= c.after_ns
),
modules AS (
    SELECT report_id, pid, module, times, sum(end_ns - from_ns) AS time_ns
    FROM begun
    WHERE analysed AND times >= threshold('timeline.loop_repeats')
    GROUP BY report_id, pid, module, times
    QUALIFY row_number() OVER (PARTITION BY report_id, pid ORDER BY sum(end_ns - from_ns) DESC, module) <= 2
),
processes AS (
    SELECT DISTINCT track, report_id, pid FROM _idle WHERE pid IS NOT NULL
)
SELECT
    g.report_id,
    g.device,
    concat(
        'XLA compiles ',
        string_agg(
            printf('%s %d times (%s)', m.module, m.times, if(
                m.time_ns < 1e9, printf('%.3g ms', m.time_ns / 1e6), printf('%.3g s', m.time_ns / 1e9)
            )),
            ' and ' ORDER BY m.time_ns DESC, m.module
        ),
        ': pad or bucket shapes'
    ) AS words
FROM modules AS m
JOIN processes AS p USING (report_id, pid)
JOIN _gpus AS g USING (track)
GROUP BY g.report_id, g.device;
