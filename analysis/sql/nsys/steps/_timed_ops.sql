-- Kernels and memsets of GPUs on which something overwrites the L2 cache again and again: which of them do
-- (flush), and which of those have an event recorded before the next launch (timed).
CREATE VIEW _timed_ops AS
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
)
SELECT o.*, f.op_id IS NOT NULL AS flush, f.op_id IS NOT NULL AND e.start_ns < o.next_ns AS timed
FROM ops AS o
LEFT JOIN fills AS f USING (track, op_id)
ASOF LEFT JOIN events AS e
    ON e.report_id = o.report_id AND e.pid = o.pid AND e.tid = o.tid AND e.start_ns >= o.api_end_ns;
