-- Launch, queue and execution time of kernels, matching `nsys stats --report cuda_kern_exec_sum`. A long
-- queue time is not a problem: it means that the host is ahead of a busy GPU. All kernels in a CUDA graph
-- have the same launching call, whose full duration counts for each kernel.
--
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- tid BIGINT: thread id of the launching thread
-- devid BIGINT: CUDA device index within the process
-- count BIGINT: number of kernels
-- qcount BIGINT: number of kernels that began after their launching call returned; the other kernels have
--   no queue time
-- tavg_ns DOUBLE: mean time from the start of the API call to the end of the kernel, ns, rounded to 0.1
-- tmed_ns DOUBLE: median time from the start of the API call to the end of the kernel, ns
-- tmin_ns BIGINT: shortest time from the start of the API call to the end of the kernel, ns
-- tmax_ns BIGINT: longest time from the start of the API call to the end of the kernel, ns
-- tstddev_ns DOUBLE: sample standard deviation of the time from the start of the API call to the end of
--   the kernel, ns
-- aavg_ns DOUBLE: mean duration of the API call, ns
-- amed_ns DOUBLE: median duration of the API call, ns
-- amin_ns BIGINT: shortest duration of the API call, ns
-- amax_ns BIGINT: longest duration of the API call, ns
-- astddev_ns DOUBLE: sample standard deviation of the API call duration, ns
-- qavg_ns DOUBLE: mean queue time, ns; NULL if no kernel has a queue time
-- qmed_ns DOUBLE: median queue time, ns
-- qmin_ns BIGINT: shortest queue time, ns
-- qmax_ns BIGINT: longest queue time, ns
-- qstddev_ns DOUBLE: sample standard deviation of the queue time, ns; 0 if there are fewer than two values,
--   as in nsys
-- kavg_ns DOUBLE: mean kernel duration, ns
-- kmed_ns DOUBLE: median kernel duration, ns
-- kmin_ns BIGINT: shortest kernel duration, ns
-- kmax_ns BIGINT: longest kernel duration, ns
-- kstddev_ns DOUBLE: sample standard deviation of the kernel duration, ns
-- api_name VARCHAR: name of the launching function
-- kernel_name VARCHAR: kernel name with template arguments
CREATE VIEW cuda_kern_exec_sum AS
WITH titles AS (
    -- A regular expression per name, not per launch.
    SELECT recorded_name, nsys_api_name(recorded_name) AS title
    FROM (SELECT unnest(list(DISTINCT api_recorded_name)) AS recorded_name FROM launches)
),
timed AS (
    SELECT
        report_id,
        pid,
        tid,
        device,
        demangled,
        title,
        greatest(end_ns, api_end_ns) - api_start_ns AS total_ns,
        api_end_ns - api_start_ns AS api_ns,
        CASE WHEN start_ns >= api_end_ns THEN start_ns - api_end_ns END AS queue_ns,
        end_ns - start_ns AS kernel_ns
    FROM launches
    LEFT JOIN titles ON recorded_name = api_recorded_name
    WHERE kind = 'kernel' AND api_start_ns IS NOT NULL
)
SELECT
    report_id,
    pid,
    tid,
    device AS devid,
    count(*) AS count,
    count(queue_ns) AS qcount,
    round_tenth(avg(total_ns)) AS tavg_ns,
    round_tenth(median(total_ns)) AS tmed_ns,
    min(total_ns) AS tmin_ns,
    max(total_ns) AS tmax_ns,
    nsys_stddev(total_ns) AS tstddev_ns,
    round_tenth(avg(api_ns)) AS aavg_ns,
    round_tenth(median(api_ns)) AS amed_ns,
    min(api_ns) AS amin_ns,
    max(api_ns) AS amax_ns,
    nsys_stddev(api_ns) AS astddev_ns,
    round_tenth(avg(queue_ns)) AS qavg_ns,
    round_tenth(median(queue_ns)) AS qmed_ns,
    min(queue_ns) AS qmin_ns,
    max(queue_ns) AS qmax_ns,
    nsys_stddev(queue_ns) AS qstddev_ns,
    round_tenth(avg(kernel_ns)) AS kavg_ns,
    round_tenth(median(kernel_ns)) AS kmed_ns,
    min(kernel_ns) AS kmin_ns,
    max(kernel_ns) AS kmax_ns,
    nsys_stddev(kernel_ns) AS kstddev_ns,
    title AS api_name,
    demangled AS kernel_name
FROM timed
GROUP BY report_id, pid, tid, device, title, demangled
ORDER BY report_id, tavg_ns DESC, pid, tid, devid, api_name, kernel_name;
