-- What the processes of a program used while `perfpipe attach` looked at it: CPU, memory, storage.
--
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- parent BIGINT: id of the parent process
-- name VARCHAR: name of the process
-- seconds DOUBLE: time between the first and the last sample, s
-- cpu_pct DOUBLE: CPU time as a percentage of this time; 100 is one busy core; NULL for a single sample
-- threads BIGINT: largest number of threads
-- running DOUBLE: mean number of threads that ran or waited for a CPU
-- blocked DOUBLE: mean number of threads in uninterruptible waits, mostly for a disk
-- memory_bytes BIGINT: largest resident memory, bytes
-- read_bytes_s DOUBLE: bytes read from storage per second; NULL if they may not be read, or for one sample
-- written_bytes_s DOUBLE: bytes written to storage per second; NULL likewise
CREATE VIEW process_use AS
SELECT
    report_id,
    pid,
    arg_max(parent, time_ns) AS parent,
    arg_max(name, time_ns) AS name,
    (max(time_ns) - min(time_ns)) / 1e9 AS seconds,
    100.0 * (max(cpu_ns) - min(cpu_ns)) / nullif(max(time_ns) - min(time_ns), 0) AS cpu_pct,
    max(threads) AS threads,
    avg(running) AS running,
    avg(blocked) AS blocked,
    max(memory_bytes) AS memory_bytes,
    1e9 * (max(read_bytes) - min(read_bytes)) / nullif(max(time_ns) - min(time_ns), 0) AS read_bytes_s,
    1e9 * (max(written_bytes) - min(written_bytes)) / nullif(max(time_ns) - min(time_ns), 0)
        AS written_bytes_s
FROM process_samples
GROUP BY report_id, pid
ORDER BY report_id, cpu_pct DESC NULLS LAST, pid;
