-- Processes that used CUDA before the capture began, so that neither their start-up nor the first uses of
-- their kernels are in it: nsys had prepared them for tracing before, or torch.profiler recorded no first
-- step (number 0). Where neither is known, a process did so whose recorded calls up to its first launch
-- neither initialize CUDA nor allocate memory; then `known` is false.
-- @materialize
CREATE VIEW _midway AS
WITH prepared AS (
    SELECT report_id, pid, min(timestamp_ns) AS time_ns
    FROM nsys_diagnostics
    WHERE text LIKE 'CUDA injection initialized%'
    GROUP BY report_id, pid
),
numbered AS (
    SELECT report_id, pid, min(TRY_CAST(regexp_extract(name, '^ProfilerStep#(\d+)$', 1) AS BIGINT)) AS step
    FROM nsys_nvtx_ranges
    WHERE name LIKE 'ProfilerStep#%'
    GROUP BY report_id, pid
),
launched AS (
    SELECT report_id, pid, min(api_start_ns) AS start_ns
    FROM launches
    GROUP BY report_id, pid
),
-- Calls up to the first launch, which is itself a call. Timelines without calls have no row.
called AS (
    SELECT
        l.report_id,
        l.pid,
        coalesce(bool_or(c.name IN (
            SELECT name
            FROM _names
            WHERE kind = 'api'
                AND (is_initializing(name) OR is_allocating(name) OR name = 'cuModuleGetLoadingMode')
        )), false) AS initializes,
        bool_or(c.start_ns = l.start_ns) AS traced
    FROM launched AS l
    JOIN nsys_api_calls AS c ON c.report_id = l.report_id AND c.pid = l.pid AND c.start_ns <= l.start_ns
    GROUP BY l.report_id, l.pid
)
SELECT l.report_id, l.pid, p.time_ns IS NOT NULL OR n.step IS NOT NULL AS known
FROM launched AS l
LEFT JOIN prepared AS p USING (report_id, pid)
LEFT JOIN numbered AS n USING (report_id, pid)
LEFT JOIN called AS c USING (report_id, pid)
WHERE CASE
    WHEN p.time_ns IS NOT NULL THEN p.time_ns < 0
    WHEN n.step IS NOT NULL THEN n.step > 0
    ELSE c.traced AND NOT c.initializes
END;
