-- Kernel time by the NVTX ranges in which the kernels were launched, equal to `nsys stats --report
-- nvtx_kern_sum`.  A kernel counts in every range around its launching call, on that call's thread;
-- kernels launched outside any range are listed under an empty name.
--
-- report_id: report
-- nvtx_range: domain:text; NULL outside any range
-- style: PushPop; NULL outside any range
-- pid: process id
-- tid: launching thread
-- nvtx_inst: number of ranges of this name that launched the kernel
-- kern_inst: number of kernels
-- total_time_ns: sum of kernel durations, ns
-- avg_ns: mean duration, ns, rounded to 0.1
-- med_ns: median duration (mean of the middle two), ns, rounded to 0.1
-- min_ns: shortest, ns
-- max_ns: longest, ns
-- stddev_ns: sample standard deviation (n - 1; 0 for one), ns, rounded to 0.1
-- kernel_name: kernel name with template arguments
CREATE VIEW nvtx_kern_sum AS
WITH threads AS (
    -- Numbers instead of names: a kernel counts in every range around it, which makes many rows.
    SELECT report_id, pid, tid, demangled, row_number() OVER () AS kernel
    FROM launches
    WHERE kind = 'kernel' AND call_id IS NOT NULL
    GROUP BY report_id, pid, tid, demangled
),
titles AS (
    SELECT report_id, domain, name, style, row_number() OVER () AS title
    FROM nsys_nvtx_ranges
    WHERE calls > 0
    GROUP BY report_id, domain, name, style
),
kernels AS (
    SELECT
        l.report_id,
        l.call_id,
        t.kernel,
        l.end_ns - l.start_ns AS dur_ns,
        l.range_id IS NULL OR l.range_source = 'main thread' AS alone,
        lag(l.call_id) OVER (PARTITION BY t.kernel ORDER BY l.call_id, l.op_id) AS same_before
    FROM launches AS l
    JOIN threads AS t
        ON t.report_id = l.report_id
            AND t.pid = l.pid
            AND t.tid = l.tid
            AND t.demangled IS NOT DISTINCT FROM l.demangled
    WHERE l.kind = 'kernel' AND l.call_id IS NOT NULL
),
held AS (
    -- The title is made a value of the row: DuckDB 2.0 fails on dictionaries of a join behind unnest.
    SELECT
        r.report_id,
        t.title + r.calls - r.calls AS title,
        r.first_call,
        unnest(range(r.first_call, r.first_call + r.calls)) AS call_id
    FROM nsys_nvtx_ranges AS r
    JOIN titles AS t ON t.report_id = r.report_id AND t.style = r.style
        AND t.domain IS NOT DISTINCT FROM r.domain AND t.name IS NOT DISTINCT FROM r.name
    WHERE r.calls > 0
),
occurrences AS (
    -- A range counts at the first launch of a kernel within it.
    SELECT h.title, k.kernel, k.dur_ns, coalesce(k.same_before < h.first_call, true) AS first_in_range
    FROM held AS h
    JOIN kernels AS k USING (report_id, call_id)
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
    CASE WHEN t.title IS NOT NULL THEN nsys_range_name(t.domain, t.name) END AS nvtx_range,
    t.style,
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
LEFT JOIN titles AS t USING (title)
ORDER BY k.report_id, nvtx_range NULLS FIRST, t.style, k.pid, k.tid, s.total_time_ns DESC, kernel_name;
