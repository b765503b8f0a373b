-- Kernel time by the NVTX ranges that the kernels were launched in, equal to `nsys stats --report nvtx_kern_sum`.
-- A kernel counts in every range around its launching call, on that call's thread; kernels launched
-- outside of any range stand under an empty name.
--
-- report_id: report
-- nvtx_range: domain and text, with a colon between; NULL outside of any range
-- style: PushPop; NULL outside of any range
-- pid: process id
-- tid: launching thread
-- nvtx_inst: ranges of this name that launched the kernel
-- kern_inst: kernels
-- total_time_ns: sum of kernel durations, ns
-- avg_ns: mean duration, ns, rounded to 0.1
-- med_ns: median duration (mean of the middle two), ns, rounded to 0.1
-- min_ns: shortest, ns
-- max_ns: longest, ns
-- stddev_ns: sample standard deviation (n - 1; 0 for one), ns, rounded to 0.1
-- kernel_name: kernel name with template arguments
CREATE VIEW nvtx_kern_sum AS
WITH attributed AS (
    SELECT k.report_id, k.pid, k.tid, k.dur_ns, k.demangled, r.range_id, nsys_range_name(r.domain, r.name) AS nvtx_range, r.style
    FROM _launched_kernels AS k
    LEFT JOIN nsys_call_ranges AS c USING (report_id, pid, correlation_id)
    LEFT JOIN _range_ancestors AS a ON a.report_id = c.report_id AND a.leaf = c.range_id
    LEFT JOIN nsys_nvtx_ranges AS r ON r.report_id = a.report_id AND r.range_id = a.range_id
)
SELECT
    report_id,
    CASE WHEN style IS NOT NULL THEN nvtx_range END AS nvtx_range,
    style,
    pid,
    tid,
    count(DISTINCT range_id) AS nvtx_inst,
    count(*) AS kern_inst,
    sum(dur_ns)::BIGINT AS total_time_ns,
    round_tenth(avg(dur_ns)) AS avg_ns,
    round_tenth(median(dur_ns)) AS med_ns,
    min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns,
    nsys_stddev(dur_ns) AS stddev_ns,
    demangled AS kernel_name
FROM attributed
GROUP BY report_id, CASE WHEN style IS NOT NULL THEN nvtx_range END, style, pid, tid, demangled
ORDER BY report_id, nvtx_range NULLS FIRST, pid, tid, total_time_ns DESC, kernel_name;
