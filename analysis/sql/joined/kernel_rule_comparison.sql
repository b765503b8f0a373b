-- What NVIDIA's rules say of each launch beside what perfpipe says, and why they differ: each result of
-- type OPT.  NVIDIA's estimates treat one unit at a time; perfpipe's verdict names what limits the launch,
-- and its bounds follow from the work that stays.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch
-- kernel_name VARCHAR: function name
-- rule VARCHAR: NVIDIA's rule
-- title VARCHAR: title of its result; NULL if it has none
-- nvidia_pct DOUBLE: its estimate, % of the run time; NULL if it gives none
-- speedup_kind VARCHAR: local (speedup of the analyzed unit) or global (of the kernel)
-- message VARCHAR: NVIDIA's text; NULL if recomputed
-- limiter VARCHAR: what limits the launch, by kernel_bottleneck
-- headroom_pct DOUBLE: SOL headroom: what the same work would save at 100 % SOL, %
-- technique VARCHAR: perfpipe's technique for the same problem; NULL if it gives none
-- gain_pct DOUBLE: bound on its gain, % of the launch's time; NULL if none can be derived
-- agrees BOOLEAN: whether perfpipe says the same, and NVIDIA's estimate is within its bounds
-- reason VARCHAR: same_limiter; or why they differ: verdict (the classes differ), no_stall, not_compressible,
--   beyond_bound (what the technique leaves takes longer), local_unit or beyond_headroom (the same work
--   cannot save so much), negligible, too_small (launch-bound), tail_first, few_warps, below_threshold,
--   busy_unit (the limiter is near its peak), within_headroom (there is room for it, but something else
--   limits first), other_unit (the unit is less busy than the limiter), other_wait or not_named
--   (perfpipe has no finding on it)
-- explanation VARCHAR: the reason in words, with its numbers
CREATE VIEW kernel_rule_comparison AS
WITH reasoned AS (
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
    FROM _rule_judgements
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
            THEN concat('same finding', printf('; perfpipe''s bound is %.0f %%', advised.gain_pct))
        WHEN 'verdict' THEN coalesce(explanation, limiter)
        WHEN 'no_stall' THEN 'these warps are ready and another one issues: no time is lost'
        WHEN 'not_compressible' THEN 'nothing compressed: it takes memory allocated as compressible'
        WHEN 'beyond_bound' THEN printf(
            'same finding, but what stays (%s) takes %.0f %% of the time at its peak: at most %.0f %% can go',
            replace(advised.floor, '_', ' '), advised.floor_pct, advised.gain_pct
        )
        WHEN 'local_unit' THEN printf(
            'one unit''s gain; the same work saves %.0f %% at most (SOL %.0f %%)', headroom_pct, max_sol_pct
        )
        WHEN 'beyond_headroom'
            THEN printf('the same work saves %.0f %% at most (SOL %.0f %%)', headroom_pct, max_sol_pct)
        WHEN 'negligible' THEN printf('less than %.0f %% of its time', threshold('rule.negligible_pct'))
        WHEN 'too_small' THEN printf(
            'it takes %.1f us and leaves SMs idle: more work per launch comes first', duration_ns / 1000
        )
        WHEN 'tail_first'
            THEN printf('SMs are idle for %.0f %% of the time behind the last blocks', imbalance_pct)
        WHEN 'few_warps' THEN concat('too few warps run to hide any wait: ', limiter, ' comes first')
        WHEN 'below_threshold' THEN CASE
            WHEN rule = 'WorkloadImbalance' OR title = 'Tail Effect' THEN printf(
                'SMs are idle for %.0f %% of the time; perfpipe calls it the limiter from %.0f %% on',
                imbalance_pct, threshold('latency.imbalance_pct')
            )
            WHEN rule = 'ThreadDivergence' THEN printf(
                '%.1f of 32 threads are active in an instruction; NVIDIA also counts those that a predicate '
                || 'switches off', threads_per_inst
            )
            ELSE printf(
                '%.0f of 32 bytes of a sector are used; perfpipe calls less than %.0f uncoalesced',
                bytes_per_sector, 32 * threshold('memory.bytes_per_sector_share')
            )
        END
        WHEN 'busy_unit' THEN printf(
            '%s limits, at %.0f %% of its peak: the rest waits for it', limiter, max_sol_pct
        )
        WHEN 'within_headroom' THEN printf(
            'within the SOL headroom of %.0f %%; perfpipe names what limits first: %s', headroom_pct, limiter
        )
        WHEN 'other_unit'
            THEN printf('%s runs at %.0f %% of its peak; what limits is %s', unit, unit_pct, limiter)
        WHEN 'other_wait' THEN printf(
            'warps wait longer for another reason: %s, %.0f %% of the cycles between instructions',
            replace(stall, '_', ' '), stall_pct
        )
        ELSE concat('perfpipe has no finding on it; what limits is ', limiter)
    END AS explanation
FROM reasoned
ORDER BY report_id, launch_id, agrees, nvidia_pct DESC NULLS LAST, rule, title;
