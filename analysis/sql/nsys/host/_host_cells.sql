-- Intervals of each thread with their stacks, from the source that says most about its process: stacks of
-- Python say more than those of native code, which the interpreter executes. The intervals of a thread do not
-- overlap. Backtraces of calls into the operating system only cover such calls, and are left out.
-- @materialize
CREATE VIEW _host_cells AS
WITH sources AS (
    SELECT DISTINCT report_id, pid, source
    FROM host_samples
    WHERE start_ns < end_ns AND source != 'os backtrace'
),
chosen AS (
    FROM sources
    QUALIFY row_number() OVER (
        PARTITION BY report_id, pid
        ORDER BY list_position(['python tracing', 'python sampling', 'py-spy', 'cpu sampling'], source)
    ) = 1
)
SELECT report_id, pid, tid, time_ns, start_ns, end_ns, stack_id, source
FROM host_samples
JOIN chosen USING (report_id, pid, source)
WHERE start_ns < end_ns;
