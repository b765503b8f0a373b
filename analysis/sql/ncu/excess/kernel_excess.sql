-- Where a kernel does more than it needs to: the instructions and source lines with excess sectors,
-- shared-memory wavefronts, accesses to local memory, atomic operations and divergent branches, ranked by
-- problem. Needs SourceCounters, but for local_spill; lines need -lineinfo.  kernel_excess_totals sums them
-- up.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- kernel_name VARCHAR: function name
-- problem VARCHAR: uncoalesced_load, uncoalesced_store or uncoalesced_atomic (of global memory),
--   bank_conflict, atomics, local_spill or divergence
-- kind VARCHAR: sass (an instruction) or line (a source line)
-- rank BIGINT: 1 has the most excess of its launch, problem and kind
-- pc BIGINT: offset of the instruction in its function, of the line's worst one, bytes; comparable between
--   runs
-- sass VARCHAR: text of that instruction
-- file VARCHAR: source file; NULL without -lineinfo
-- line BIGINT: source line
-- text VARCHAR: text of that line; NULL if sources were not imported
-- unit VARCHAR: what is counted: sectors (of 32 bytes, from L2), wavefronts (of shared memory), instructions
--   (per warp, on local memory: spills, and arrays that registers cannot hold), operations (atomics, per
--   thread) or branches (per warp)
-- excess BIGINT: sectors and wavefronts beyond those of a coalesced or conflict-free access, all instructions
--   on local memory, atomic operations beyond one per warp instruction (what aggregating them in the warp
--   could save), divergent branches
-- counted BIGINT: all that the unit counts there
-- share_pct DOUBLE: share of the launch's excess of that problem, %
-- excess_pct DOUBLE: the launch's excess, % of all that the unit counts in it; see kernel_excess_totals
-- notable BOOLEAN: whether that is much enough to be shown in reports
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
