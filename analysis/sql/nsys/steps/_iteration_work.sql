-- What an iteration launches on the timeline: the sum of its GPU operations and their span, medians
-- in ms, one row per report.  An iteration is an NVTX range that is a step.
CREATE VIEW _iteration_work AS
WITH iterations AS (
    SELECT report_id, pid, start_ns, end_ns, row_number() OVER () AS iteration
    FROM _steps
    WHERE end_ns IS NOT NULL
),
launched AS (
    -- By launch time: autograd launches from a thread other than that of the range.
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
)
SELECT
    report_id,
    median(work_ns) / 1e6 AS traced_ms,
    median(span_ns) / 1e6 AS traced_span_ms,
    median(operations)::BIGINT AS traced_operations,
    median(kernels)::BIGINT AS kernels
FROM sums
GROUP BY report_id;
