-- What the host did in a step that it does not do in every step: time in first uses of kernels,
-- module loading and allocation of device memory, ns.
CREATE VIEW _step_signals AS
WITH own AS (
    SELECT DISTINCT report_id, pid, host_start_ns, host_end_ns
    FROM _process_steps
),
-- Launches of one kernel take about as long each time but for the first, which loads it.
first_uses AS (
    SELECT
        report_id,
        pid,
        min(api_start_ns) AS start_ns,
        arg_min(api_end_ns - api_start_ns, (api_start_ns, api_end_ns)) AS dur_ns
    FROM launches
    WHERE kind = 'kernel'
    GROUP BY report_id, pid, coalesce(demangled, name)
),
occasional AS (
    SELECT report_id, pid, start_ns, dur_ns, 'first uses of kernels' AS what
    FROM first_uses
    UNION ALL
    SELECT
        report_id,
        pid,
        start_ns,
        dur_ns,
        if(is_loading(name), 'module loading', 'allocation of device memory')
    FROM nsys_api_calls
    WHERE name IN (SELECT name FROM _names WHERE kind = 'api' AND (is_loading(name) OR is_allocating(name)))
)
SELECT
    s.report_id,
    s.pid,
    s.host_start_ns,
    o.what,
    sum(o.dur_ns)::BIGINT AS time_ns
FROM occasional AS o
ASOF JOIN own AS s
    ON s.report_id = o.report_id AND s.pid = o.pid AND s.host_start_ns <= o.start_ns
WHERE o.start_ns < s.host_end_ns AND o.dur_ns > 0
GROUP BY ALL;
