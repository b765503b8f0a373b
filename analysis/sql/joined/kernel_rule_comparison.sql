-- Compares NVIDIA's rules with perfpipe's verdict for each launch, and explains any difference. There is one
-- row for each rule result of type OPT. NVIDIA's estimates consider one hardware unit at a time. perfpipe's
-- verdict names the launch's limiter, and its bounds follow from the work that remains.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- rule VARCHAR: identifier of NVIDIA's rule
-- title VARCHAR: title of the rule's result; NULL without a title
-- nvidia_pct DOUBLE: NVIDIA's estimated speedup, % of the run time; NULL without an estimate
-- speedup_kind VARCHAR: local (speedup of the analyzed unit) or global (speedup of the kernel)
-- message VARCHAR: NVIDIA's message; NULL if the rule was recomputed
-- limiter VARCHAR: the launch's limiter, from kernel_bottleneck
-- headroom_pct DOUBLE: SOL headroom: time saved if the same work ran at 100 % SOL, % of the launch's time
-- technique VARCHAR: technique that perfpipe recommends for the same problem; NULL without a recommendation
-- gain_pct DOUBLE: upper bound on the technique's gain, % of the launch's time; NULL if no bound can be
--   derived
-- agrees BOOLEAN: whether perfpipe finds the same problem and NVIDIA's estimate is within perfpipe's bounds
-- reason VARCHAR: same_limiter if perfpipe finds the same problem, else why the results differ: verdict (the
--   classes differ), no_stall (the state is not a stall), not_compressible (no data is compressible),
--   beyond_bound (the work that the technique leaves unchanged takes longer), local_unit or beyond_headroom
--   (the same work cannot save as much), negligible (the estimate is small), too_small (launch-bound),
--   tail_first (idle SMs in the tail limit first), few_warps (too few warps to hide latency), below_threshold
--   (the problem is too small to report), busy_unit (the limiter is near its peak), within_headroom (possible
--   within the headroom, but something else limits first), other_unit (the unit is less busy than the
--   limiter), other_wait (another stall reason is larger) or not_named (perfpipe has no finding for the
--   problem)
-- explanation VARCHAR: explanation of the reason, with the relevant numbers
CREATE VIEW kernel_rule_comparison AS
WITH advice AS (
    SELECT
        f.report_id,
        f.launch_id,
        list(
            {
                technique: f.technique, rule: f.nvidia_rule, features: t.features,
                gain_pct: f.gain_pct, floor: f.floor, floor_pct: f.floor_pct
            }
            ORDER BY f.rank
        ) AS advice
    FROM kernel_findings AS f
    JOIN (SELECT DISTINCT technique, features FROM _techniques) AS t USING (technique)
    GROUP BY f.report_id, f.launch_id
),
classed AS (
    SELECT
        b.*,
        [b.bound, concat_ws('.', b.bound, b.subclass), coalesce(b.cause, '-')] AS classes,
        concat(b.bound, ' (' || replace(b.subclass, '_', ' ') || ')') AS limiter,
        a.advice,
        l.duration_ns,
        l.kernel_name,
        l.max_sol_pct,
        headroom(l.max_sol_pct) AS headroom_pct,
        i.imbalance_pct,
        i.bytes_per_sector,
        i.threads_per_inst,
        i.stall,
        i.stall_pct,
        w.compression_success_pct,
        map {
            'compute': l.compute_sol_pct,
            'memory': l.memory_sol_pct,
            'l1': coalesce(l.l1_elapsed_sol_pct, l.shared_sol_pct),
            'l2': l.l2_sol_pct
        } AS levels
    FROM kernel_bottleneck AS b
    JOIN kernel_sol AS l USING (report_id, launch_id)
    JOIN _bottleneck_inputs AS i USING (report_id, launch_id)
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    LEFT JOIN advice AS a USING (report_id, launch_id)
),
-- Subjects of NVIDIA's rules: the classes of kernel_bottleneck (bound, bound.subclass or cause) and the
-- features of kernel_features for the same problem; whether a rule is about the same work in less time, which
-- SOL headroom limits, or about less work; and the unit that would have less work (NULL for waits). A row
-- without title applies to all other results of the rule.
rule_subjects AS (
    FROM (VALUES
        ('SOLBottleneck', NULL, []::VARCHAR[], true, 'memory'),
        ('IssueSlotUtilization', NULL, ['latency', 'launch', 'compute.issue'], true, 'compute'),
        ('HighPipeUtilization', NULL, ['compute', 'balanced'], false, 'compute'),
        ('HighPipeUtilization', 'Low Utilization', ['latency', 'launch'], true, 'compute'),
        ('AchievedOccupancy', NULL, ['latency', 'launch'], true, NULL),
        (
            'TheoreticalOccupancy',
            NULL,
            ['latency.occupancy', 'latency.memory', 'latency.dependency', 'latency.barrier'],
            true,
            NULL
        ),
        (
            'LaunchConfiguration',
            NULL,
            ['launch', 'small_grid', 'latency.small_grid', 'latency.occupancy'],
            true,
            NULL
        ),
        ('LaunchConfiguration', 'Tail Effect', ['latency.tail'], true, NULL),
        -- Idle lanes are more than the headroom of the same instructions.
        ('LaunchConfiguration', 'Block Size', ['latency.idle_lanes', 'narrow_blocks'], false, NULL),
        ('WorkloadImbalance', NULL, ['latency.tail', 'small_grid', 'latency.small_grid'], true, 'compute'),
        ('WorkloadImbalance', 'L2 Slices Workload Imbalance', ['memory.l2'], true, 'l2'),
        ('CPIStall', NULL, ['latency.dependency'], true, NULL),
        ('CPIStall', 'Long Scoreboard Stalls', ['latency.memory'], true, 'memory'),
        ('CPIStall', 'Short Scoreboard Stalls', ['latency.memory', 'memory.shared', 'memory.l1'], true, 'l1'),
        ('CPIStall', 'Mio Throttle Stalls', ['memory.shared', 'memory.l1'], true, 'l1'),
        ('CPIStall', 'Lg Throttle Stalls',
            ['memory.l1', 'atomics', 'local_spill', 'local_memory', 'uncoalesced'], true, 'l1'),
        ('CPIStall', 'Barrier Stalls', ['latency.barrier'], true, NULL),
        ('CPIStall', 'Math Pipe Throttle Stalls', ['compute'], true, 'compute'),
        ('UncoalescedGlobalAccess', NULL, ['uncoalesced'], false, 'memory'),
        ('MemoryCacheAccessPattern', NULL, ['uncoalesced'], false, 'memory'),
        ('MemoryCacheAccessPattern', 'L2 Local Load Access Pattern',
            ['local_spill', 'spills', 'local_memory', 'local'], false, 'memory'),
        ('MemoryCacheAccessPattern', 'L2 Local Store Access Pattern',
            ['local_spill', 'spills', 'local_memory', 'local'], false, 'memory'),
        ('MemoryCacheAccessPattern', 'L1TEX Local Load Access Pattern',
            ['local_spill', 'spills', 'local_memory', 'local'], false, 'l1'),
        ('MemoryCacheAccessPattern', 'L1TEX Local Store Access Pattern',
            ['local_spill', 'spills', 'local_memory', 'local'], false, 'l1'),
        ('UncoalescedSharedAccess', NULL, ['bank_conflict', 'memory.shared', 'conflicts'], false, 'l1'),
        ('SharedMemoryConflicts', NULL, ['bank_conflict', 'memory.shared', 'conflicts'], false, 'l1'),
        ('MemoryL2Compression', NULL, []::VARCHAR[], false, 'memory'),
        (
            'ThreadDivergence',
            NULL,
            ['compute.divergence', 'divergence', 'divergent', 'latency.idle_lanes', 'narrow_blocks'],
            false,
            'compute'
        ),
        ('FPInstructions', NULL, ['compute.fma', 'compute.issue', 'compute.fp16'], false, 'fma'),
        ('FPInstructions', 'FP64 Non-Fused Instructions', ['compute.fp64'], false, 'fp64'),
        ('SOLFPRoofline', NULL, ['compute.fp64'], false, 'fp64')
    ) AS r (rule, title, subjects, same_work, unit)
),
matched AS (
    SELECT
        r.*,
        s.subjects,
        s.same_work,
        s.unit,
        c.* EXCLUDE (report_id, launch_id, advice, levels),
        coalesce(c.levels[s.unit], p.pct) AS unit_pct,
        list_filter(
            c.advice,
            -- This rule covers many kinds of access.
            lambda x: (coalesce(x.rule = r.rule, false) AND r.rule != 'MemoryCacheAccessPattern')
                OR list_has_any(x.features, s.subjects)
        )[1] AS advised
    FROM kernel_rules AS r
    JOIN classed AS c USING (report_id, launch_id)
    LEFT JOIN rule_subjects AS s
        ON s.rule = r.rule
            AND coalesce(s.title = r.title, NOT EXISTS (
                SELECT 1 FROM rule_subjects AS t WHERE t.rule = r.rule AND t.title = r.title
            ))
    LEFT JOIN kernel_pipes AS p
        ON p.report_id = r.report_id AND p.launch_id = r.launch_id AND p.pipe = s.unit
    WHERE r.type = 'OPT'
),
-- NVIDIA's rules for each launch, with the values for the comparison with perfpipe's verdict.
rule_judgements AS (
    SELECT
        * EXCLUDE (advised),
        -- Waits have many causes, each with its own techniques.
        list_has_any(subjects, classes) OR (rule != 'CPIStall' AND advised IS NOT NULL) AS same,
        CASE WHEN same THEN advised END AS advised
    FROM matched
),
reasoned AS (
    SELECT
        *,
        CASE
            WHEN rule = 'SOLBottleneck' THEN if(agrees_with_ncu, 'same_limiter', 'verdict')
            WHEN title = 'Not Selected Stalls' THEN 'no_stall'
            WHEN rule = 'MemoryL2Compression' AND compression_success_pct = 0 THEN 'not_compressible'
            WHEN same AND speedup_pct > advised.gain_pct + threshold('rule.tolerance_points')
                THEN 'beyond_bound'
            WHEN same_work AND speedup_pct > headroom_pct + threshold('rule.tolerance_points')
                THEN if(speedup_kind = 'local', 'local_unit', 'beyond_headroom')
            WHEN same THEN 'same_limiter'
            WHEN speedup_pct < threshold('rule.negligible_pct') THEN 'negligible'
            WHEN bound = 'launch' THEN 'too_small'
            WHEN subclass = 'tail' THEN 'tail_first'
            WHEN subclass IN ('small_grid', 'occupancy') AND rule IN ('CPIStall', 'TheoreticalOccupancy')
                THEN 'few_warps'
            WHEN CASE
                WHEN (rule = 'WorkloadImbalance' AND unit = 'compute') OR title = 'Tail Effect'
                    THEN imbalance_pct < threshold('latency.imbalance_pct')
                WHEN list_contains(subjects, 'uncoalesced')
                    THEN bytes_per_sector >= 32 * threshold('memory.bytes_per_sector_share')
                WHEN rule = 'ThreadDivergence' THEN threads_per_inst >= threshold('rule.threads')
            END THEN 'below_threshold'
            WHEN same_work AND bound IN ('compute', 'memory', 'balanced')
                THEN if(max_sol_pct >= threshold('sol.high_pct'), 'busy_unit', 'within_headroom')
            WHEN unit_pct < if(bound = 'latency', threshold('sol.latency_pct'), max_sol_pct) THEN 'other_unit'
            WHEN rule = 'CPIStall' AND stall_pct IS NOT NULL THEN 'other_wait'
            WHEN same_work AND headroom_pct IS NOT NULL THEN 'within_headroom'
            ELSE 'not_named'
        END AS reason
    FROM rule_judgements
)
SELECT
    report_id,
    launch_id,
    kernel_name,
    rule,
    title,
    speedup_pct AS nvidia_pct,
    speedup_kind,
    message,
    limiter,
    headroom_pct,
    advised.technique AS technique,
    advised.gain_pct AS gain_pct,
    reason = 'same_limiter' AS agrees,
    reason,
    CASE reason
        WHEN 'same_limiter'
            THEN concat(
                'perfpipe has the same finding', printf(', with a bound of %.0f %%', advised.gain_pct)
            )
        WHEN 'verdict' THEN coalesce(explanation, limiter)
        WHEN 'no_stall' THEN 'not a stall: the warps are ready while another warp issues'
        WHEN 'not_compressible'
            THEN 'no data is compressed, because compression requires compressible allocations'
        WHEN 'beyond_bound' THEN printf(
            'perfpipe has the same finding, but the remaining work (%s) takes %.0f %% of the time at peak, '
            || 'so at most %.0f %% can be saved',
            replace(advised.floor, '_', ' '), advised.floor_pct, advised.gain_pct
        )
        WHEN 'local_unit' THEN printf(
            'the estimate considers one unit; the same work at 100 %% SOL would save at most %.0f %% '
            || '(SOL is %.0f %%)',
            headroom_pct, max_sol_pct
        )
        WHEN 'beyond_headroom'
            THEN printf(
                'the same work at 100 %% SOL would save at most %.0f %% (SOL is %.0f %%)',
                headroom_pct, max_sol_pct
            )
        WHEN 'negligible'
            THEN printf(
                'the estimate is less than %.0f %% of the kernel''s time', threshold('rule.negligible_pct')
            )
        WHEN 'too_small' THEN printf(
            'the kernel takes %.1f us and leaves SMs idle; first give each launch more work',
            duration_ns / 1000
        )
        WHEN 'tail_first'
            THEN printf('after their last blocks, SMs are idle for %.0f %% of the time', imbalance_pct)
        WHEN 'few_warps' THEN concat('too few warps run to hide latency; first fix the limiter: ', limiter)
        WHEN 'below_threshold' THEN CASE
            WHEN rule = 'WorkloadImbalance' OR title = 'Tail Effect' THEN printf(
                'SMs are idle for %.0f %% of the time (a limiter only if above %.0f %%)',
                imbalance_pct, threshold('latency.imbalance_pct')
            )
            WHEN rule = 'ThreadDivergence' THEN printf(
                '%.1f of 32 threads are active per instruction; NVIDIA also counts threads that are '
                || 'predicated off', threads_per_inst
            )
            ELSE printf(
                '%.0f of 32 bytes per sector are used (uncoalesced below %.0f)',
                bytes_per_sector, 32 * threshold('memory.bytes_per_sector_share')
            )
        END
        WHEN 'busy_unit' THEN printf(
            'the kernel is limited by %s at %.0f %% of peak, so other units wait for that unit',
            limiter, max_sol_pct
        )
        WHEN 'within_headroom' THEN printf(
            'the estimate is within the SOL headroom (%.0f %%), but the limiter is %s', headroom_pct, limiter
        )
        WHEN 'other_unit'
            THEN printf('%s runs at %.0f %% of peak; the limiter is %s', unit, unit_pct, limiter)
        WHEN 'other_wait' THEN printf(
            'another stall reason is larger: %s, %.0f %% of the cycles between instructions',
            replace(stall, '_', ' '), stall_pct
        )
        ELSE concat('perfpipe has no corresponding finding; the limiter is ', limiter)
    END AS explanation
FROM reasoned
ORDER BY report_id, launch_id, agrees, nvidia_pct DESC NULLS LAST, rule, title;
