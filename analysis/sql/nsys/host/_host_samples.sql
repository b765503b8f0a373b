-- Stacks of each process from the source that knows most about it, and the backtraces of its CUDA calls.
-- Intervals of a thread do not overlap: stacks of Python say more than those of native code, which the
-- interpreter executes. Backtraces of calls into the operating system are left out.
CREATE VIEW _host_samples AS
WITH best AS (
    SELECT report_id, pid, source
    FROM (SELECT DISTINCT report_id, pid, source FROM host_samples WHERE start_ns IS NOT NULL)
    WHERE source != 'os backtrace'
    QUALIFY row_number() OVER (PARTITION BY report_id, pid ORDER BY list_position(
        ['python tracing', 'python sampling', 'py-spy', 'cpu sampling'], source
    )) = 1
)
SELECT s.*
FROM host_samples AS s
LEFT JOIN best AS b ON b.report_id = s.report_id AND b.pid = s.pid AND b.source = s.source
WHERE b.source IS NOT NULL OR s.correlation_id IS NOT NULL;
