-- Ranges with one repeated name, such as `iteration` or `train_step`, or with names that count, such as `i7`
-- or `unit 12`, if no range has the name of a step: per process, the ranges of the name whose consecutive
-- occurrences on a thread launch most of the GPU's work. If several names launch about as much, the name with
-- the fewest occurrences is used.
-- Layers count anew in each pass, so a number that rises throughout is that of an iteration. In a single pass
-- the numbers of layers rise, too; but iterations copy to or from the host, launch a CUDA graph, or contain
-- the loop of the layers. None of this depends on how often requests come.
-- @materialize
CREATE VIEW _repeated_ranges AS
WITH processes AS (
    -- Numbered ranges come first: if all processes have them, no range is read again.
    SELECT DISTINCT report_id, pid
    FROM _tracks
    ANTI JOIN _steps USING (report_id, pid)
    WHERE step_loop() IS NULL
),
stems AS (
    SELECT
        name,
        CASE WHEN regexp_matches(name, '\d') AND NOT is_no_step(name)
            THEN regexp_replace(name, '\d+', '#', 'g')
        END AS stem,
        regexp_extract_all(name, '\d+') AS numbers
    FROM _names
    -- A module or an operator of PyTorch is a part of a step; ranges of a compiler or a profiler are none.
    WHERE kind = 'range' AND NOT is_part(name) AND NOT is_compiling(name)
        AND (regexp_matches(name, '\d') OR NOT is_no_step(name))
),
named AS (
    SELECT r.report_id, r.pid, r.tid, r.name, r.start_ns, r.end_ns, r.range_id, r.first_call, r.calls,
        s.stem, s.numbers
    FROM (FROM nsys_nvtx_ranges SEMI JOIN processes USING (report_id, pid)) AS r
    JOIN stems AS s USING (name)
    WHERE r.end_ns > r.start_ns AND r.style != 'Mark'
        AND r.domain IS DISTINCT FROM 'cpu_op' AND NOT is_of_profiler(r.domain)
),
numbered AS (
    SELECT report_id, pid, tid, stem, start_ns, range_id,
        unnest(numbers) AS digits, generate_subscripts(numbers, 1) AS place
    FROM named
    SEMI JOIN (
        SELECT report_id, pid, tid, stem
        FROM named
        WHERE stem IS NOT NULL
        GROUP BY report_id, pid, tid, stem
        HAVING count(*) >= threshold('timeline.loop_repeats') AND count(DISTINCT name) = count(*)
    ) USING (report_id, pid, tid, stem)
),
-- A name that counts has one number that rises from each range to the next.
counting AS (
    SELECT DISTINCT report_id, pid, tid, stem
    FROM (
        SELECT *, TRY_CAST(digits AS BIGINT) > lag(TRY_CAST(digits AS BIGINT), 1, -1) OVER (
            PARTITION BY report_id, pid, tid, stem, place ORDER BY start_ns, range_id
        ) AS rises
        FROM numbered
    )
    GROUP BY report_id, pid, tid, stem, place
    HAVING bool_and(coalesce(rises, false))
),
plain AS (
    SELECT n.*, c.stem IS NOT NULL AS counts, coalesce(c.stem, n.name) AS key
    FROM named AS n
    LEFT JOIN counting AS c USING (report_id, pid, tid, stem)
),
keys AS (
    SELECT report_id, pid, tid, key, counts, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        count(*) AS times, sum(end_ns - start_ns) AS filled_ns
    FROM plain
    GROUP BY report_id, pid, tid, key, counts
    HAVING count(*) BETWEEN threshold('timeline.loop_repeats') AND threshold('timeline.most_steps')
        -- Nested or overlapping occurrences take longer than they span.
        AND sum(end_ns - start_ns) <= max(end_ns) - min(start_ns)
),
inside AS (
    SELECT
        k.*,
        sum(l.end_ns - l.start_ns) AS time_ns,
        count(DISTINCT p.range_id) FILTER (
            l.kind = 'graph' OR l.name LIKE '%Host-to-Device%' OR l.name LIKE '%Device-to-Host%'
        ) AS units
    FROM plain AS p
    JOIN keys AS k USING (report_id, pid, tid, key, counts)
    JOIN (FROM launches SEMI JOIN keys USING (report_id, pid)) AS l
        ON l.report_id = p.report_id AND l.pid = p.pid AND l.api_start_ns BETWEEN p.start_ns AND p.end_ns
    GROUP BY ALL
),
totals AS (
    SELECT report_id, pid, sum(end_ns - start_ns) AS time_ns
    FROM (FROM launches SEMI JOIN keys USING (report_id, pid))
    GROUP BY report_id, pid
),
large AS (
    SELECT i.*, i.time_ns / t.time_ns AS share
    FROM inside AS i
    JOIN totals AS t USING (report_id, pid)
    WHERE i.time_ns >= threshold('timeline.range_coverage_pct') / 100 * t.time_ns
),
-- Ranges that fill little time are iterations all the same if hardly any work lies between them: the program
-- waits for requests.
waiting AS (
    SELECT g.report_id, g.pid, g.tid, g.key, g.counts
    FROM (FROM large WHERE filled_ns < 0.5 * (end_ns - start_ns)) AS g
    JOIN launches AS l
        ON l.report_id = g.report_id AND l.pid = g.pid AND l.api_start_ns BETWEEN g.start_ns AND g.end_ns
    GROUP BY g.report_id, g.pid, g.tid, g.key, g.counts, g.time_ns
    HAVING g.time_ns >= threshold('timeline.each_step') * sum(l.end_ns - l.start_ns)
),
looped AS (
    SELECT
        report_id,
        pid,
        max(iterations) AS iterations,
        max(iterations) FILTER (role = 'step' AND evidence LIKE '%optimizer%') AS updates
    FROM launch_loops
    GROUP BY report_id, pid
),
chosen AS (
    SELECT g.*
    FROM large AS g
    LEFT JOIN waiting AS w USING (report_id, pid, tid, key, counts)
    LEFT JOIN looped AS l USING (report_id, pid)
    WHERE (g.filled_ns >= 0.5 * (g.end_ns - g.start_ns) OR w.key IS NOT NULL)
        AND (
            NOT g.counts
            OR g.units >= threshold('timeline.each_step') * g.times
            OR l.iterations >= threshold('timeline.loop_repeats') * g.times
        )
        -- Ranges of several training steps each, such as epochs, are none.
        AND NOT (g.counts AND coalesce(l.updates > g.times + 1, false))
    QUALIFY row_number() OVER (
        PARTITION BY g.report_id, g.pid
        ORDER BY round(10 * g.share) DESC, g.times, g.key, g.tid
    ) = 1
)
SELECT p.report_id, p.range_id, p.name, p.pid, p.start_ns, p.end_ns, p.first_call, p.calls, 'NVTX' AS source
FROM plain AS p
SEMI JOIN chosen USING (report_id, pid, tid, key, counts);
