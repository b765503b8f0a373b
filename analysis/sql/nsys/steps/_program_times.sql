-- How long a program ran under nsys, and the time before its first CUDA call, ns; only if the whole run was
-- captured.
CREATE VIEW _program_times AS
WITH lasted AS (
    SELECT report_id, 1e6 * max(TRY_CAST(value AS DOUBLE)) AS program_ns
    FROM nsys_environment
    WHERE source = 'capture' AND name = 'RUN_DURATION_MS'
    GROUP BY report_id
)
SELECT report_id, program_ns, min(c.start_ns) AS before_ns
FROM lasted
JOIN nsys_api_calls AS c USING (report_id)
GROUP BY report_id, program_ns
-- A capture that covers a part is not timed from the start of the program.
HAVING max(c.end_ns) <= program_ns;
