-- Pairs of ncu and nsys reports that belong together: reports of the same configuration of a run, or reports
-- ingested by hand that profile the same program (for an interpreter, the same script), as far as both name
-- it. If both name their GPU, it must be the same.
CREATE VIEW _report_pairs AS
WITH tasks AS (
    SELECT run_id, task_index, unnest(reports) AS report_id
    FROM run_tasks
),
sided AS (
    SELECT
        r.report_id,
        r.kind,
        r.gpu,
        program_name(r.command) AS program,
        script_name(r.command) AS script,
        t.run_id,
        t.task_index
    FROM reports AS r
    LEFT JOIN tasks AS t USING (report_id)
)
SELECT DISTINCT nsys.report_id, ncu.report_id AS ncu_report_id
FROM sided AS nsys
JOIN sided AS ncu
    ON ncu.run_id IS NOT DISTINCT FROM nsys.run_id
    AND ncu.task_index IS NOT DISTINCT FROM nsys.task_index
    AND coalesce(ncu.gpu = nsys.gpu, true)
    AND (
        ncu.run_id IS NOT NULL
        OR coalesce(ncu.program = nsys.program, true) AND coalesce(ncu.script = nsys.script, true)
    )
WHERE nsys.kind = 'nsys' AND ncu.kind = 'ncu';
