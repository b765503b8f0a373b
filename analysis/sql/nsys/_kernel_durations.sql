-- Duration statistics by name, of kernels, as every nsys summary defines them.
CREATE VIEW _kernel_durations AS
SELECT
    report_id,
    demangled AS name,
    sum(dur_ns)::BIGINT AS total_time_ns,
    count(*) AS instances,
    round_tenth(avg(dur_ns)) AS avg_ns,
    round_tenth(median(dur_ns)) AS med_ns,
    min(dur_ns) AS min_ns,
    max(dur_ns) AS max_ns,
    round_tenth(coalesce(stddev_samp(dur_ns), 0)) AS stddev_ns
FROM nsys_kernels
GROUP BY report_id, demangled;
