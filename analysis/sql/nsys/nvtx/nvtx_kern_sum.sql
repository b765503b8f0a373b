-- Kernel time by the NVTX range in which the kernels were launched, matching `nsys stats --report
-- nvtx_kern_sum`. A kernel counts toward every range that encloses its launching call on the same thread.
-- Kernels launched outside all ranges are listed without a range name.
--
-- report_id VARCHAR: report
-- nvtx_range VARCHAR: name of the range, as domain:text; NULL for kernels launched outside all ranges
-- style VARCHAR: range style: PushPop or StartEnd; NULL for kernels launched outside all ranges
-- pid BIGINT: process id
-- tid BIGINT: thread id of the launching thread
-- nvtx_inst BIGINT: number of ranges with this name that launched the kernel
-- kern_inst BIGINT: number of kernel executions
-- total_time_ns BIGINT: sum of kernel durations, ns
-- avg_ns DOUBLE: mean duration, ns, rounded to 0.1
-- med_ns DOUBLE: median duration (mean of the two middle values if the count is even), ns, rounded to 0.1
-- min_ns BIGINT: shortest duration, ns
-- max_ns BIGINT: longest duration, ns
-- stddev_ns DOUBLE: sample standard deviation (divisor n - 1; 0 if there is only one value), ns, rounded
--   to 0.1
-- kernel_name VARCHAR: kernel name with template arguments
CREATE VIEW nvtx_kern_sum AS
WITH threads AS MATERIALIZED (
    -- Numbers instead of names, because a kernel counts in every enclosing range, which makes many rows.
    SELECT
        *,
        row_number() OVER () AS kernel,
        dense_rank() OVER (ORDER BY report_id) AS report
    FROM (
        SELECT DISTINCT report_id, pid, tid, demangled
        FROM launches
        WHERE kind = 'kernel' AND call_id IS NOT NULL
    )
),
reports AS (
    SELECT DISTINCT report_id, report
    FROM threads
),
names AS MATERIALIZED (
    SELECT name, row_number() OVER () AS number
    FROM _names
    WHERE kind = 'range'
),
domains AS MATERIALIZED (
    -- DuckDB estimates a list as short, so that it joins ranges to domains and not domains to ranges.
    SELECT domain, row_number() OVER () AS number
    FROM (SELECT unnest(list(DISTINCT domain)) AS domain FROM nsys_nvtx_ranges)
),
kernels AS (
    SELECT
        -- Calls are numbered within a report.
        4294967296 * t.report + l.call_id AS call,
        t.kernel,
        l.end_ns - l.start_ns AS dur_ns,
        l.range_id IS NULL OR l.range_source != 'own thread' AS alone,
        lag(call) OVER (PARTITION BY t.kernel ORDER BY l.call_id) AS same_before
    FROM launches AS l
    JOIN threads AS t
        ON t.report_id = l.report_id
            AND t.pid = l.pid
            AND t.tid = l.tid
            AND t.demangled IS NOT DISTINCT FROM l.demangled
    WHERE l.kind = 'kernel' AND l.call_id IS NOT NULL
),
ranges AS NOT MATERIALIZED (
    -- Joined on one text at a time, which is cheapest. 0 represents an empty name.
    SELECT
        4294967296 * p.report + r.first_call AS first_call,
        r.calls,
        coalesce(n.number, 0)
            + ((r.style = 'StartEnd')::BIGINT + 2 * coalesce(d.number, 0)) * 4294967296 AS title
    FROM nsys_nvtx_ranges AS r
    JOIN reports AS p ON p.report_id = r.report_id
    LEFT JOIN domains AS d ON d.domain = r.domain
    LEFT JOIN names AS n ON n.name = r.name
),
held AS (
    SELECT title, first_call, first_call AS call
    FROM ranges
    WHERE calls = 1
    UNION ALL
    SELECT title, first_call, unnest(range(first_call, first_call + calls))
    FROM ranges
    WHERE calls > 1
),
occurrences AS (
    -- A range counts at the first launch of a kernel within it.
    SELECT h.title, k.kernel, k.dur_ns, coalesce(k.same_before < h.first_call, true) AS first_in_range
    FROM held AS h
    JOIN kernels AS k USING (call)
    UNION ALL
    SELECT NULL, kernel, dur_ns, false
    FROM kernels
    WHERE alone
),
sums AS (
    SELECT
        title,
        kernel,
        count(*) FILTER (first_in_range) AS nvtx_inst,
        count(*) AS kern_inst,
        sum(dur_ns)::BIGINT AS total_time_ns,
        round_tenth(avg(dur_ns)) AS avg_ns,
        round_tenth(median(dur_ns)) AS med_ns,
        min(dur_ns) AS min_ns,
        max(dur_ns) AS max_ns,
        nsys_stddev(dur_ns) AS stddev_ns
    FROM occurrences
    GROUP BY title, kernel
)
SELECT
    k.report_id,
    CASE WHEN s.title IS NOT NULL THEN nsys_range_name(d.domain, n.name) END AS nvtx_range,
    CASE (s.title >> 32) % 2 WHEN 0 THEN 'PushPop' WHEN 1 THEN 'StartEnd' END AS style,
    k.pid,
    k.tid,
    s.nvtx_inst,
    s.kern_inst,
    s.total_time_ns,
    s.avg_ns,
    s.med_ns,
    s.min_ns,
    s.max_ns,
    s.stddev_ns,
    k.demangled AS kernel_name
FROM sums AS s
JOIN threads AS k USING (kernel)
LEFT JOIN names AS n ON n.number = s.title % 4294967296
LEFT JOIN domains AS d ON d.number = s.title >> 33
ORDER BY k.report_id, nvtx_range NULLS FIRST, style, k.pid, k.tid, s.total_time_ns DESC, kernel_name;
