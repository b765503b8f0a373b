-- Source hot spots: instructions and source lines ranked by stall samples, with their stall reasons. A warp
-- stalls at the instruction that needs a value, not at the instruction that produces the value. The view
-- needs ncu's section SourceCounters; source lines also need -lineinfo.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- kind VARCHAR: sass (instruction) or line (source line)
-- rank BIGINT: rank by stall samples within the launch and kind, from 1 for the most samples
-- pc BIGINT: offset of the instruction from the start of the function, bytes; for a source line, offset of
--   its first instruction; comparable between runs
-- sass VARCHAR: SASS text of the instruction; NULL for a source line
-- file VARCHAR: source file; NULL without -lineinfo
-- line BIGINT: line number in the source file
-- text VARCHAR: source code of the line; NULL if sources were not imported
-- samples BIGINT: number of warp samples, in any warp state
-- stall_samples BIGINT: number of warp samples in a stalled state
-- stall_pct DOUBLE: share of the launch's stall samples at the instruction or source line, %
-- top_reason VARCHAR: most frequent stall reason
-- top_reason_pct DOUBLE: share of stall_samples that is due to top_reason, %
-- reasons STRUCT(samples BIGINT, reason VARCHAR)[]: stall reasons with their sample counts, most frequent
--   first
-- executions BIGINT: number of warp-level executions of the instruction, or of all instructions of the source
--   line
CREATE VIEW kernel_hotspots AS
WITH places AS (
    SELECT
        report_id,
        launch_id,
        'sass' AS kind,
        pc,
        sass,
        file,
        line,
        text,
        samples,
        executions,
        COLUMNS('^stall_')
    FROM ncu_source
    WHERE samples > 0
    UNION ALL BY NAME
    SELECT
        report_id,
        launch_id,
        'line' AS kind,
        min(pc) AS pc,
        file,
        line,
        min(text) AS text,
        sum(samples)::BIGINT AS samples,
        sum(executions)::BIGINT AS executions,
        sum(COLUMNS('^(stall_.*)$'))::BIGINT AS '\1'
    FROM ncu_source
    WHERE line > 0
    GROUP BY report_id, launch_id, file, line
),
reasoned AS (
    SELECT
        *,
        list_filter([
            {samples: stall_barrier, reason: 'barrier'},
            {samples: stall_branch_resolving, reason: 'branch_resolving'},
            {samples: stall_dispatch_stall, reason: 'dispatch_stall'},
            {samples: stall_drain, reason: 'drain'},
            {samples: stall_gmma, reason: 'gmma'},
            {samples: stall_imc_miss, reason: 'imc_miss'},
            {samples: stall_lg_throttle, reason: 'lg_throttle'},
            {samples: stall_long_scoreboard, reason: 'long_scoreboard'},
            {samples: stall_math_pipe_throttle, reason: 'math_pipe_throttle'},
            {samples: stall_membar, reason: 'membar'},
            {samples: stall_mio_throttle, reason: 'mio_throttle'},
            {samples: stall_misc, reason: 'misc'},
            {samples: stall_no_instruction, reason: 'no_instruction'},
            {samples: stall_short_scoreboard, reason: 'short_scoreboard'},
            {samples: stall_sleeping, reason: 'sleeping'},
            {samples: stall_tex_throttle, reason: 'tex_throttle'},
            {samples: stall_wait, reason: 'wait'}
        ], lambda entry: entry.samples > 0) AS unsorted
    FROM places
),
stalled AS (
    SELECT
        *,
        list_reverse_sort(unsorted) AS reasons,
        list_sum(list_transform(unsorted, lambda entry: entry.samples))::BIGINT AS stall_samples
    FROM reasoned
    WHERE len(unsorted) > 0
)
SELECT
    s.report_id,
    s.launch_id,
    l.kernel_name,
    s.kind,
    row_number() OVER (
        PARTITION BY s.report_id, s.launch_id, s.kind
        ORDER BY s.stall_samples DESC, s.pc, s.line, s.file, s.sass
    ) AS rank,
    s.pc,
    s.sass,
    s.file,
    s.line,
    s.text,
    s.samples,
    s.stall_samples,
    100.0 * s.stall_samples / nullif(
        sum(s.stall_samples) OVER (PARTITION BY s.report_id, s.launch_id, s.kind), 0
    ) AS stall_pct,
    s.reasons[1].reason AS top_reason,
    100.0 * s.reasons[1].samples / nullif(s.stall_samples, 0) AS top_reason_pct,
    s.reasons,
    s.executions
FROM stalled AS s
JOIN ncu_launches AS l USING (report_id, launch_id)
ORDER BY s.report_id, s.launch_id, s.kind, rank;
