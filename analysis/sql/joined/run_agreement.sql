-- Checks whether the program's own timing, nsys and ncu agree for each configuration. The iteration time
-- without a profiler is compared with an iteration's GPU work on the timeline and in the profiled kernels. An
-- iteration is an NVTX range that marks a step.
--
-- run_id VARCHAR: run
-- task_index BIGINT: configuration, counted from 0
-- label VARCHAR: parameters of the configuration as text
-- timed_ms DOUBLE: median iteration time without a profiler, ms
-- timing_method VARCHAR: timing method: queued (GPU time only), events (including launch overhead), or
--   observed (perfpipe timed the steps of a program that prints no times)
-- traced_ms DOUBLE: total duration of the GPU operations that an iteration launches, median over the
--   iterations on the timeline, ms
-- traced_span_ms DOUBLE: median time from the start of an iteration's first GPU operation to the end of its
--   last, ms
-- traced_operations BIGINT: median number of GPU operations per iteration
-- profiled_ms DOUBLE: total duration of the profiled kernels, ms; NULL if ncu profiled more or fewer kernels
--   than an iteration launches
-- traced_pct DOUBLE: difference between traced_ms and timed_ms, % of timed_ms
-- profiled_pct DOUBLE: difference between profiled_ms and timed_ms, % of timed_ms
-- agrees BOOLEAN: whether timed_ms differs from traced_ms or from traced_span_ms by at most the threshold;
--   NULL if a time is missing
-- explanation VARCHAR: why the times differ
CREATE VIEW run_agreement AS
WITH profiled AS (
    SELECT report_id, ordered_sum(duration_ns) / 1e6 AS profiled_ms, count(*) AS kernels
    FROM ncu_launches
    GROUP BY report_id
),
sources AS (
    SELECT run_id, task_index, unnest(reports) AS report_id
    FROM run_tasks
),
iterations AS (
    SELECT report_id, pid, start_ns, end_ns, row_number() OVER () AS iteration
    FROM _steps
    WHERE end_ns IS NOT NULL
),
launched AS (
    -- By launch time, because autograd launches from a thread other than that of the range.
    SELECT l.report_id, i.iteration, l.kind, l.start_ns, l.end_ns
    FROM launches AS l
    ASOF JOIN iterations AS i ON i.report_id = l.report_id AND i.pid = l.pid AND i.start_ns <= l.api_start_ns
    WHERE l.api_start_ns < i.end_ns
),
sums AS (
    SELECT
        report_id,
        iteration,
        sum(end_ns - start_ns) AS work_ns,
        max(end_ns) - min(start_ns) AS span_ns,
        count(*) AS operations,
        count(*) FILTER (kind = 'kernel') AS kernels
    FROM launched
    GROUP BY report_id, iteration
),
-- Work that an iteration launches on the timeline: the sum of its GPU operations and their span, medians in
-- ms, one row per report. An iteration is an NVTX range that is a step.
iteration_work AS (
    SELECT
        report_id,
        median(work_ns) / 1e6 AS traced_ms,
        median(span_ns) / 1e6 AS traced_span_ms,
        median(operations)::BIGINT AS traced_operations,
        median(kernels)::BIGINT AS kernels
    FROM sums
    GROUP BY report_id
),
found AS (
    SELECT
        s.run_id,
        s.task_index,
        any_value(t.traced_ms ORDER BY s.report_id) AS traced_ms,
        any_value(t.traced_span_ms ORDER BY s.report_id) AS traced_span_ms,
        any_value(t.traced_operations ORDER BY s.report_id) AS traced_operations,
        any_value(t.kernels ORDER BY s.report_id) AS traced_kernels,
        any_value(p.profiled_ms ORDER BY s.report_id) AS profiled_ms,
        any_value(p.kernels ORDER BY s.report_id) AS profiled_kernels
    FROM sources AS s
    LEFT JOIN iteration_work AS t USING (report_id)
    LEFT JOIN profiled AS p USING (report_id)
    GROUP BY s.run_id, s.task_index
),
compared AS (
    SELECT
        r.run_id,
        r.task_index,
        r.label,
        r.median_ms AS timed_ms,
        r.timing_method,
        r.throttled_by,
        f.traced_ms,
        f.traced_span_ms,
        f.traced_operations,
        CASE
            WHEN f.profiled_kernels = coalesce(f.traced_kernels, f.profiled_kernels) THEN f.profiled_ms
        END AS profiled_ms,
        f.profiled_ms IS NOT NULL AND f.profiled_kernels != f.traced_kernels AS profiled_in_part
    FROM run_tasks AS r
    JOIN found AS f USING (run_id, task_index)
),
shares AS (
    SELECT
        *,
        100 * (traced_ms / nullif(timed_ms, 0) - 1) AS traced_pct,
        100 * (traced_span_ms / nullif(timed_ms, 0) - 1) AS span_pct,
        100 * (profiled_ms / nullif(timed_ms, 0) - 1) AS profiled_pct
    FROM compared
)
SELECT
    run_id,
    task_index,
    label,
    timed_ms,
    timing_method,
    traced_ms,
    traced_span_ms,
    traced_operations,
    profiled_ms,
    traced_pct,
    profiled_pct,
    least(abs(traced_pct), abs(span_pct)) <= threshold('agreement.differ_pct') AS agrees,
    concat_ws(
        '; ',
        CASE
            WHEN traced_pct < -threshold('agreement.differ_pct')
                AND timed_ms - traced_ms <= traced_operations * threshold('agreement.gap_us') / 1e3
                THEN 'the time includes gaps of about 1 us between short kernels'
            WHEN traced_pct < -threshold('agreement.differ_pct') AND timing_method = 'queued'
                THEN 'the time includes gaps between the operations of an iteration'
            WHEN traced_pct < -threshold('agreement.differ_pct')
                THEN 'the time includes host time: launch overhead, waiting, copies'
            WHEN traced_pct > threshold('agreement.differ_pct')
                THEN 'operations overlap, or GPU clocks were lower under nsys'
        END,
        CASE
            WHEN profiled_in_part THEN 'ncu profiled only some kernels of an iteration'
            WHEN profiled_pct > threshold('agreement.differ_pct')
                THEN 'ncu starts with cold caches and an idle GPU'
            WHEN profiled_pct < -threshold('agreement.differ_pct')
                AND list_contains(throttled_by, 'power cap')
                THEN 'under steady load the power cap lowers the clocks; '
                    || 'under ncu the GPU is idle between kernels'
            WHEN profiled_pct < -threshold('agreement.differ_pct')
                THEN 'ncu measures each kernel alone, without gaps'
        END
    ) AS explanation
FROM shares
ORDER BY run_id, task_index;
