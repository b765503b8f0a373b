-- Compilations of XLA's modules that run as programs, in the order of their ends. Modules that an autotuner
-- compiles and tries are parts of them. `times` counts the compilations of a module in the analyzed windows.
-- @materialize
CREATE VIEW _compilations AS
WITH ranges AS (
    SELECT report_id, pid, tid, name, xla_module(name) AS module, start_ns, end_ns
    FROM nsys_nvtx_ranges
    WHERE regexp_matches(name, '^Xla(Compile|CompileBackend|Module):#') AND end_ns > start_ns
),
programs AS (
    SELECT DISTINCT report_id, pid, module
    FROM ranges
    WHERE starts_with(name, 'XlaModule:') AND contains(name, 'program_id=')
),
parts AS (
    SELECT r.*, starts_with(r.name, 'XlaCompileBackend:') AS inner_part
    FROM ranges AS r
    SEMI JOIN programs USING (report_id, pid, module)
    WHERE NOT starts_with(r.name, 'XlaModule:')
),
-- The range around a compilation counts where the part that generates code is not recorded.
compilations AS (
    FROM parts
    WHERE inner_part
    UNION ALL
    SELECT p.*
    FROM parts AS p
    ANTI JOIN parts AS i
        ON i.report_id = p.report_id AND i.pid = p.pid AND i.tid = p.tid AND i.module = p.module
            AND i.inner_part AND i.start_ns >= p.start_ns AND i.end_ns <= p.end_ns
    WHERE NOT p.inner_part
),
spans AS (
    SELECT DISTINCT g.report_id, w.start_ns, w.end_ns
    FROM (FROM _step_windows SEMI JOIN _analysed USING (track, window_id)) AS w
    JOIN _gpus AS g USING (track)
),
inside AS (
    SELECT
        c.report_id, c.pid, c.module, c.start_ns, c.end_ns,
        EXISTS (
            FROM spans AS s
            WHERE s.report_id = c.report_id AND s.start_ns < c.end_ns AND s.end_ns > c.start_ns
        ) AS analysed
    FROM compilations AS c
)
SELECT *, count(*) FILTER (analysed) OVER (PARTITION BY report_id, pid, module) AS times
FROM inside;
