-- What a kernel does beyond what it needs to, summed over its instructions: a row for each problem of each
-- launch whose counters were collected, with excess 0 where there is none.  A launch without rows was
-- profiled without SourceCounters (kernel_gaps), or has no such access.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- problem VARCHAR: uncoalesced_load, uncoalesced_store or uncoalesced_atomic (of global memory),
--   bank_conflict, atomics, local_spill or divergence
-- unit VARCHAR: sectors, wavefronts, instructions, operations or branches; see kernel_excess
-- excess BIGINT: sum of what is beyond need
-- counted BIGINT: all that the unit counts in these instructions
-- excess_pct DOUBLE: excess / counted, %; for local_spill, share of all executed instructions, %
-- places BIGINT: instructions with excess
-- pc BIGINT: offset of the instruction with the most, bytes; NULL if there is no excess
-- sass VARCHAR: its text
-- file VARCHAR: its source file; NULL without -lineinfo
-- line BIGINT: its source line
CREATE VIEW kernel_excess_totals AS
WITH executed AS (
    SELECT report_id, launch_id, sum(executions) AS instructions
    FROM ncu_source
    GROUP BY report_id, launch_id
),
sums AS (
    SELECT
        report_id,
        launch_id,
        problem,
        any_value(unit) AS unit,
        sum(excess)::BIGINT AS excess,
        sum(counted)::BIGINT AS counted,
        count(*) FILTER (excess > 0) AS places,
        arg_max({pc: pc, sass: sass, file: file, line: line}, (excess, -pc)) FILTER (excess > 0) AS worst
    FROM _excess_places
    GROUP BY report_id, launch_id, problem
)
SELECT
    s.report_id,
    s.launch_id,
    s.problem,
    s.unit,
    s.excess,
    s.counted,
    100.0 * s.excess
        / nullif(CASE WHEN s.problem = 'local_spill' THEN e.instructions ELSE s.counted END, 0) AS excess_pct,
    s.places,
    s.worst.pc AS pc,
    s.worst.sass AS sass,
    s.worst.file AS file,
    s.worst.line AS line
FROM sums AS s
JOIN executed AS e USING (report_id, launch_id)
ORDER BY s.report_id, s.launch_id, s.excess DESC, s.problem;
