-- Activities of programs before they run steadily: first uses of kernels, module loading, allocation of
-- device memory, contexts, communicators, compilation, autotuning and graph capture. Loading within a first
-- use counts as first use.
-- @materialize
CREATE VIEW _occasional_calls AS
WITH first_uses AS (
    -- Launches of one kernel take about as long each time, except the first one, which loads it.
    SELECT
        report_id,
        pid,
        min(api_start_ns) AS start_ns,
        arg_min(api_end_ns, (api_start_ns, api_end_ns)) AS end_ns,
        arg_min(tid, (api_start_ns, api_end_ns)) AS tid
    FROM launches
    WHERE kind = 'kernel'
    GROUP BY report_id, pid, coalesce(demangled, name)
    -- If the capture began while an engine ran, any iteration may have the first launch of a kernel in it,
    -- which is as short as the others. Other programs launch the same in each step, so the first step has
    -- them all, and the start of the profiler as well.
    HAVING (report_id, pid) NOT IN (
            SELECT (report_id, pid) FROM _midway SEMI JOIN _engines USING (report_id, pid)
        )
        OR arg_min(api_end_ns - api_start_ns, (api_start_ns, api_end_ns))
        > threshold('timeline.alike_times') * median(api_end_ns - api_start_ns)
),
used AS (
    SELECT report_id, pid, tid, start_ns, max(end_ns) AS end_ns
    FROM first_uses
    WHERE end_ns > start_ns
    GROUP BY report_id, pid, tid, start_ns
),
launched AS (
    SELECT report_id, pid, min(start_ns) AS start_ns
    FROM first_uses
    GROUP BY report_id, pid
),
known AS (
    SELECT c.report_id, c.pid, c.tid, c.start_ns, c.end_ns, is_loading(c.name) AS loads,
        is_allocating(c.name) AS allocates
    FROM nsys_api_calls AS c
    WHERE c.end_ns > c.start_ns
        AND c.name IN (
            SELECT name
            FROM _names
            WHERE kind = 'api' AND (is_loading(name) OR is_allocating(name) OR is_initializing(name))
        )
),
-- If no call was long enough to create the context, the first allocation creates it.
counted AS (
    SELECT
        k.*,
        -- After the first kernel launch, a context exists, and calls that could have created it do their own
        -- work.
        coalesce(k.start_ns < l.start_ns, true) AS early,
        early
        AND sum(if(allocates, 1, 0)) OVER so_far = 1
        AND 2 * (k.end_ns - k.start_ns) > sum(if(loads, 0, k.end_ns - k.start_ns)) OVER so_far AS creates
    FROM known AS k
    LEFT JOIN launched AS l USING (report_id, pid)
    WINDOW so_far AS (
        PARTITION BY k.report_id, k.pid ORDER BY k.start_ns, k.end_ns ROWS UNBOUNDED PRECEDING
    )
),
calls AS (
    SELECT
        report_id,
        pid,
        tid,
        start_ns,
        end_ns,
        CASE
            WHEN loads THEN 'module loading'
            WHEN allocates AND NOT creates THEN 'allocation of device memory'
            ELSE 'context creation'
        END AS what
    FROM counted
    WHERE loads OR allocates OR early
    UNION ALL
    SELECT
        report_id,
        pid,
        tid,
        start_ns,
        end_ns,
        CASE
            WHEN is_tuning(name) THEN 'autotuning of kernels'
            WHEN is_compiling(name) THEN 'compilation'
            ELSE 'communicator initialization'
        END
    FROM nsys_nvtx_ranges
    WHERE end_ns > start_ns
        AND name IN (
            SELECT name
            FROM _names
            WHERE kind = 'range' AND (is_compiling(name) OR is_tuning(name) OR is_connecting(name))
        )
)
SELECT report_id, pid, start_ns, end_ns, 'first uses of kernels' AS what
FROM used
UNION ALL
SELECT report_id, pid, start_ns, end_ns, 'graph capture'
FROM _graph_builds
UNION ALL
SELECT c.report_id, c.pid, c.start_ns, c.end_ns, c.what
FROM calls AS c
ASOF LEFT JOIN used AS u
    ON u.report_id = c.report_id AND u.pid = c.pid AND u.tid = c.tid AND u.start_ns <= c.start_ns
WHERE u.end_ns IS NULL OR u.end_ns < c.end_ns;
