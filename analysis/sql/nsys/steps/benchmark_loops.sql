-- Programs that time individual kernels, as triton.testing.do_bench and nvbench do. Such programs repeatedly
-- overwrite the L2 cache, record an event and launch the timed kernel. These loops are not treated as steps,
-- because their idle time and cache flushes belong to the benchmark harness. Programs that mark their steps
-- with ranges are not checked.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- repetitions BIGINT: number of flushes that are followed by an event record before the next launch
-- flushes BIGINT: number of cache flushes
-- flush_ns BIGINT: total time of the cache flushes, ns
-- flush_pct DOUBLE: flush_ns as a percentage of the GPU's time in kernels and memsets
-- loops_pct DOUBLE: kernel and memset time in the loops, including flushes, as a percentage of the GPU's time
--   in kernels and memsets
-- span_pct DOUBLE: kernel and memset time from the first to the last repetition, including warm-up between
--   loops, as a percentage of the GPU's time in kernels and memsets
-- flush_names VARCHAR[]: full names of the operations that flush the cache
-- kernels BIGINT: number of distinct timed kernels by full name
-- longest VARCHAR: short name of the timed kernel with the largest total time
-- longest_pct DOUBLE: percentage of the loops' time, excluding flushes, in the kernel with the largest
--   total time
CREATE VIEW benchmark_loops AS
WITH filling AS (
    SELECT DISTINCT demangled FROM _known_kernels WHERE regexp_matches(demangled, '\bFillFunctor<')
),
fills AS (
    SELECT t.track, l.report_id, l.op_id
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    WHERE (l.kind = 'memset' OR coalesce(l.demangled, l.name) IN (FROM filling))
        AND l.end_ns - l.start_ns >= threshold('benchmark.flush_us') * 1000
),
candidates AS (
    SELECT track, report_id
    FROM fills
    WHERE report_id NOT IN (SELECT report_id FROM _steps UNION ALL SELECT report_id FROM _repeated_ranges)
    GROUP BY track, report_id
    HAVING count(*) >= threshold('benchmark.repetitions')
),
ops AS (
    SELECT
        t.track,
        l.report_id,
        l.pid,
        l.tid,
        l.op_id,
        coalesce(l.demangled, l.name) AS demangled,
        l.start_ns,
        l.end_ns - l.start_ns AS dur_ns,
        l.api_end_ns,
        lead(l.api_start_ns) OVER (PARTITION BY l.report_id, l.pid, l.tid ORDER BY l.api_start_ns) AS next_ns
    FROM launches AS l
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    JOIN candidates AS c ON c.track = t.track
    WHERE l.kind IN ('kernel', 'memset')
),
events AS (
    SELECT report_id, pid, tid, start_ns
    FROM nsys_api_calls
    WHERE name LIKE 'cu%EventRecord%' AND report_id IN (SELECT report_id FROM candidates)
),
-- Kernels and memsets of GPUs on which the L2 cache is overwritten repeatedly: which of them flush the cache
-- (flush), and which flushes are followed by an event record before the next launch (timed).
timed_ops AS (
    SELECT o.*, f.op_id IS NOT NULL AS flush, f.op_id IS NOT NULL AND e.start_ns < o.next_ns AS timed
    FROM ops AS o
    LEFT JOIN fills AS f USING (track, op_id)
    ASOF LEFT JOIN events AS e
        ON e.report_id = o.report_id AND e.pid = o.pid AND e.tid = o.tid AND e.start_ns >= o.api_end_ns
),
numbered AS (
    SELECT *, count(if(flush, 1, NULL)) OVER (PARTITION BY track ORDER BY start_ns, op_id) AS repetition
    FROM timed_ops
),
sizes AS (
    SELECT track, repetition, count(*) AS ops
    FROM numbered
    WHERE repetition > 0
    GROUP BY track, repetition
),
-- A loop repeats the timed work, so one of its repetitions has as many operations as its neighbor. Other work
-- follows the last repetition of a loop.
alike AS (
    SELECT track, repetition
    FROM sizes
    QUALIFY ops = lag(ops) OVER (PARTITION BY track ORDER BY repetition)
        OR ops = lead(ops) OVER (PARTITION BY track ORDER BY repetition)
),
spans AS (
    SELECT track, min(repetition) AS first, max(repetition) AS last
    FROM alike
    GROUP BY track
),
placed AS (
    SELECT n.*, a.repetition IS NOT NULL AS inside, n.repetition BETWEEN s.first AND s.last AS spanned
    FROM numbered AS n
    LEFT JOIN alike AS a USING (track, repetition)
    JOIN spans AS s USING (track)
),
found AS (
    SELECT
        track,
        count(*) FILTER (timed) AS repetitions,
        count(*) FILTER (flush) AS flushes,
        coalesce(sum(dur_ns) FILTER (flush), 0)::BIGINT AS flush_ns,
        coalesce(sum(dur_ns) FILTER (inside), 0)::BIGINT AS loops_ns,
        coalesce(sum(dur_ns) FILTER (spanned), 0)::BIGINT AS span_ns,
        sum(dur_ns)::BIGINT AS time_ns,
        list(DISTINCT demangled ORDER BY demangled) FILTER (flush) AS flush_names
    FROM placed
    GROUP BY track
    HAVING repetitions >= threshold('benchmark.repetitions')
        AND 100 * loops_ns >= threshold('benchmark.loops_pct') * sum(dur_ns)
        AND 100 * span_ns >= threshold('benchmark.span_pct') * sum(dur_ns)
),
timed AS (
    SELECT track, demangled, sum(dur_ns) AS time_ns, count(*) OVER (PARTITION BY track) AS kernels,
        100.0 * sum(dur_ns) / sum(sum(dur_ns)) OVER (PARTITION BY track) AS longest_pct
    FROM placed
    WHERE inside AND NOT flush
    GROUP BY track, demangled
    QUALIFY row_number() OVER (PARTITION BY track ORDER BY sum(dur_ns) DESC, demangled) = 1
)
SELECT
    g.report_id,
    g.device,
    f.repetitions,
    f.flushes,
    f.flush_ns,
    100.0 * f.flush_ns / f.time_ns AS flush_pct,
    100.0 * f.loops_ns / f.time_ns AS loops_pct,
    100.0 * f.span_ns / f.time_ns AS span_pct,
    f.flush_names,
    t.kernels,
    coalesce(n.short_name, t.demangled) AS longest,
    t.longest_pct
FROM found AS f
JOIN timed AS t USING (track)
JOIN _gpus AS g USING (track)
LEFT JOIN _known_kernels AS n ON n.report_id = g.report_id AND n.demangled = t.demangled
ORDER BY g.report_id, g.device;
