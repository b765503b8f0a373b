-- Intervals of each thread with their stacks, from one source for each thread: the one that says most. The
-- intervals of a thread do not overlap.
-- @materialize
CREATE VIEW _host_cells AS
WITH sources AS (
    SELECT DISTINCT report_id, pid, tid, source
    FROM host_samples
    WHERE start_ns < end_ns
),
chosen AS (
    FROM sources
    QUALIFY row_number() OVER (
        PARTITION BY report_id, pid, tid
        ORDER BY list_position(
            ['python tracing', 'python sampling', 'py-spy', 'cpu sampling', 'os backtrace'], source
        )
    ) = 1
)
SELECT report_id, pid, tid, time_ns, start_ns, end_ns, stack_id, source
FROM host_samples
JOIN chosen USING (report_id, pid, tid, source)
WHERE start_ns < end_ns;
