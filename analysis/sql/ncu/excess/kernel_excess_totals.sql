-- Unnecessary work of each launch, summed over its instructions. There is one row for each problem whose
-- counters were collected; excess is 0 if the problem does not occur. A launch without rows was profiled
-- without SourceCounters (see kernel_gaps), or executes no instructions of the counted kinds.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- problem VARCHAR: uncoalesced_load, uncoalesced_store or uncoalesced_atomic (global memory), bank_conflict,
--   atomics, local_spill or divergence
-- unit VARCHAR: unit of excess and counted: sectors, wavefronts, instructions, operations or branches; see
--   kernel_excess
-- excess BIGINT: total excess count of all instructions; see kernel_excess
-- counted BIGINT: total count of all instructions of the counted kind, including the excess
-- excess_pct DOUBLE: excess / counted, %; for local_spill, share of all executed warp instructions, %
-- places BIGINT: number of instructions with an excess count above 0
-- pc BIGINT: offset of the instruction with the largest excess count, bytes; NULL without excess
-- sass VARCHAR: SASS text of the instruction with the largest excess count (excess sectors, wavefronts, ...;
--   see unit)
-- file VARCHAR: source file of the instruction with the largest excess count; NULL without -lineinfo
-- line BIGINT: source line of the instruction with the largest excess count; NULL without -lineinfo
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
