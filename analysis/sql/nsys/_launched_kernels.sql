-- Kernels with the API call that launched each; one call may own many (CUDA graphs).  Kernels
-- without a recorded call are left out, as in nsys's own reports; launches has them.
CREATE VIEW _launched_kernels AS
WITH calls AS (
    SELECT DISTINCT report_id, pid, correlation_id, tid, api_start_ns, api_end_ns
    FROM launches
    WHERE kind = 'kernel' AND api_start_ns IS NOT NULL
)
SELECT
    k.report_id,
    k.pid,
    c.tid,
    k.device,
    k.stream,
    k.correlation_id,
    k.start_ns,
    k.end_ns,
    k.dur_ns,
    k.demangled,
    c.api_start_ns,
    c.api_end_ns
FROM nsys_kernels AS k
JOIN calls AS c USING (report_id, pid, correlation_id);
