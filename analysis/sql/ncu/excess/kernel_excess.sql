-- Instructions and source lines that do more work than necessary: excess sectors, excess shared-memory
-- wavefronts, accesses to local memory, atomic operations and divergent branches, ranked within each problem.
-- All problems except local_spill need ncu's section SourceCounters; source lines need -lineinfo. For the
-- totals of each launch, see kernel_excess_totals.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- problem VARCHAR: uncoalesced_load, uncoalesced_store or uncoalesced_atomic (global memory), bank_conflict,
--   atomics, local_spill or divergence
-- kind VARCHAR: sass (instruction) or line (source line)
-- rank BIGINT: rank by excess within the launch, problem and kind, from 1 for the largest excess
-- pc BIGINT: offset of the instruction from the start of the function, bytes; for a source line, offset of
--   its instruction with the largest excess; comparable between runs
-- sass VARCHAR: SASS text of the instruction at pc
-- file VARCHAR: source file; NULL without -lineinfo
-- line BIGINT: line number in the source file
-- text VARCHAR: source code of the line; NULL if sources were not imported
-- unit VARCHAR: unit of excess and counted: sectors (32 bytes, from L2), wavefronts (of shared memory),
--   instructions (warp instructions that access local memory, because of spills or arrays that do not fit in
--   registers), operations (atomics, counted per thread) or branches (counted per warp)
-- excess BIGINT: excess count, by problem: sectors in excess of a coalesced access; wavefronts in excess of a
--   conflict-free access; all instructions that access local memory; atomic operations in excess of one per
--   warp instruction (warp-level aggregation could avoid them); divergent branches
-- counted BIGINT: total count for the instruction or source line, including the excess
-- share_pct DOUBLE: share of the launch's total excess for the problem, %
-- excess_pct DOUBLE: the launch's total excess for the problem, % of the launch's total count; see
--   kernel_excess_totals
-- notable BOOLEAN: whether excess_pct is large enough for reports to show the problem
CREATE VIEW kernel_excess AS
WITH places AS (
    SELECT
        report_id,
        launch_id,
        problem,
        'sass' AS kind,
        pc,
        sass,
        file,
        line,
        text,
        unit,
        excess,
        counted
    FROM _excess_places
    WHERE excess > 0
    UNION ALL
    SELECT
        report_id,
        launch_id,
        problem,
        'line' AS kind,
        arg_max(pc, (excess, -pc)) AS pc,
        arg_max(sass, (excess, -pc)) AS sass,
        file,
        line,
        min(text) AS text,
        any_value(unit) AS unit,
        sum(excess)::BIGINT AS excess,
        sum(counted)::BIGINT AS counted
    FROM _excess_places
    WHERE line > 0
    GROUP BY report_id, launch_id, problem, file, line
    HAVING sum(excess) > 0
)
SELECT
    p.report_id,
    p.launch_id,
    l.kernel_name,
    p.problem,
    p.kind,
    row_number() OVER (
        PARTITION BY p.report_id, p.launch_id, p.problem, p.kind
        ORDER BY p.excess DESC, p.pc, p.line, p.file
    ) AS rank,
    p.pc,
    p.sass,
    p.file,
    p.line,
    p.text,
    p.unit,
    p.excess,
    p.counted,
    100.0 * p.excess / t.excess AS share_pct,
    t.excess_pct,
    t.excess_pct >= threshold('excess.notable_pct') AS notable
FROM places AS p
JOIN kernel_excess_totals AS t USING (report_id, launch_id, problem)
JOIN ncu_launches AS l USING (report_id, launch_id)
ORDER BY p.report_id, p.launch_id, p.problem, p.kind, rank;
