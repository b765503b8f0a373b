-- Ordered rules for the bound, then the limiter (subclass), then the cause. The first matching rule decides.
-- A comparison with a number that was not collected does not match.
CREATE VIEW _bottleneck_class AS
WITH ruled AS (
    SELECT
        *,
        CASE
            WHEN max_sol_pct IS NULL AND coalesce(unit.pct < threshold('sol.high_pct'), true) THEN 'unknown'
            WHEN duration_ns < threshold('launch.short_ns')
                AND (
                    grid_size < sm_count OR waves < threshold('sol.full_wave')
                    OR sm_active_share < threshold('launch.sm_active_share')
                )
                THEN 'launch'
            -- A unit near its peak is a bound, whatever the other units do.
            WHEN max_sol_pct IS NULL THEN 'one_unit'
            WHEN max_sol_pct >= threshold('sol.high_pct') THEN 'larger_sol'
            WHEN max_sol_pct >= threshold('sol.latency_pct')
                AND abs(compute_sol_pct - memory_sol_pct) >= threshold('sol.balanced_points')
                THEN 'larger_sol'
            WHEN max_sol_pct >= threshold('sol.latency_pct') THEN 'balanced'
            WHEN one_pass AND max_sol_pct >= threshold('sol.one_pass_pct') THEN 'unknown'
            -- If all but a few SMs have work, a nearby roof decides.
            WHEN waves < threshold('sol.full_wave')
                THEN if(near_roof AND waves >= threshold('sol.nearly_full_wave'), 'near_roof', 'small_grid')
            WHEN busiest_level_pct >= threshold('rescue.level_pct') THEN 'busy_level' -- memory SOL hides it
            WHEN coalesce(imbalance_pct, wave_loss_pct) >= threshold('latency.imbalance_pct') THEN 'imbalance'
            WHEN issue_active_pct >= threshold('compute.issue_pct') THEN 'issue'
            ELSE 'latency'
        END AS rule,
        -- Matrix instructions read their operands from shared memory: an L1 data stage that is as busy as the
        -- tensor pipe does the same work.
        coalesce(
            memory_sol_pct > compute_sol_pct
                AND compute_sol_pct >= threshold('sol.high_pct')
                AND memory_sol_pct - compute_sol_pct < threshold('sol.balanced_points')
                AND pipe = 'tensor'
                AND pipe_pct >= threshold('sol.high_pct')
                AND memory_part = 'l1',
            false
        ) AS feeds_tensor
    FROM _bottleneck_inputs
),
bounds AS (
    SELECT
        *,
        CASE rule
            WHEN 'near_roof' THEN if(compute_sol_pct >= memory_sol_pct, 'compute', 'memory')
            WHEN 'larger_sol' THEN if(compute_sol_pct >= memory_sol_pct OR feeds_tensor, 'compute', 'memory')
            WHEN 'busy_level' THEN 'memory'
            WHEN 'one_unit' THEN unit.side
            WHEN 'issue' THEN 'compute'
            ELSE if(rule IN ('small_grid', 'imbalance'), 'latency', rule)
        END AS bound,
        -- Without ncu's constituents: the level whose throughput is closest to the memory SOL.
        CASE
            WHEN rule = 'busy_level' THEN CASE busiest_level_pct
                WHEN dram_sol_pct THEN 'dram'
                WHEN l2_sol_pct THEN 'l2'
                ELSE 'l1'
            END
            WHEN rule = 'one_unit' AND unit.part IS NOT NULL THEN unit.part
            WHEN memory_part IS NOT NULL THEN memory_part
            ELSE list_sort(list_filter([
                {gap: abs(dram_sol_pct - memory_sol_pct), level: 'dram'},
                {gap: abs(l2_sol_pct - memory_sol_pct), level: 'l2'},
                {gap: abs(l1_sol_pct - memory_sol_pct), level: 'l1'}
            ], lambda x: x.gap IS NOT NULL))[1].level
        END AS level,
        CASE
            WHEN stall_family IN ('memory', 'shared') THEN 'memory'
            WHEN stall_family = 'sync' THEN 'barrier'
            WHEN stall_family IS NOT NULL THEN 'dependency'
        END AS stalled_on
    FROM ruled
),
subclasses AS (
    SELECT
        *,
        CASE bound
            WHEN 'launch' THEN CASE
                WHEN grid_size < sm_count OR waves < threshold('sol.full_wave') THEN 'small_grid'
                ELSE 'short'
            END
            WHEN 'compute' THEN CASE
                WHEN is_divergent(threads_per_inst, threads_per_warp, threshold('compute.divergent_threads'))
                    THEN 'divergence'
                WHEN rule = 'issue' THEN 'issue'
                WHEN rule = 'one_unit' AND unit.part IS NOT NULL THEN unit.part
                WHEN pipe_pct >= threshold('compute.pipe_pct') THEN pipe
                WHEN coalesce(issue_elapsed_pct <= pipe_pct, true) THEN pipe
                ELSE 'issue'
            END
            WHEN 'memory' THEN CASE
                -- Shared memory uses the L1 data stage.
                WHEN level = 'l1'
                    AND shared_sol_pct
                    >= threshold('sol.high_pct') / 100 * coalesce(memory_part_pct, l1_sol_pct)
                    THEN 'shared'
                ELSE level
            END
            WHEN 'latency' THEN CASE
                WHEN rule = 'small_grid' AND grid_size < sm_count THEN 'small_grid'
                WHEN rule = 'imbalance' THEN 'tail'
                WHEN rule = 'latency' AND idle_lanes_pct >= 100 * threshold('compute.most_idle_share')
                    THEN 'idle_lanes'
                -- Warpgroup matrix instructions are asynchronous, so that few warps keep them busy.
                WHEN rule = 'latency'
                    AND coalesce(gmma_pipe_pct = 0, true)
                    AND occupancy_pct < threshold('latency.occupancy_pct')
                    AND eligible_warps < threshold('latency.eligible_warps')
                    THEN 'occupancy'
                -- Without stalls and eligible warps, few warps are the only known limit.
                WHEN rule = 'latency'
                    AND eligible_warps IS NULL AND stalled_on IS NULL
                    AND occupancy_pct <= threshold('latency.occupancy_pct')
                    AND NOT coalesce(tensor_pct >= threshold('rule.pipe_low_pct'), false)
                    THEN 'occupancy'
                WHEN dram_unknown AND coalesce(stalled_on = 'memory', true) THEN 'dram_unknown'
                ELSE stalled_on
            END
        END AS subclass
    FROM bounds
)
SELECT
    *,
    CASE
        WHEN bound IN ('launch', 'unknown') THEN NULL
        -- Idle lanes cost nothing in a kernel that is busy with DRAM or has few threads.
        WHEN idle_lanes_pct >= 100 * threshold('compute.idle_lane_share')
            AND NOT (bound = 'memory' AND coalesce(level = 'dram', false))
            AND rule NOT IN ('small_grid', 'imbalance')
            THEN 'narrow_blocks'
        WHEN bound = 'compute' AND fp64_for_floats AND subclass IN ('fp64', 'xu', 'issue')
            THEN 'fp64_for_floats'
        WHEN bound = 'compute' THEN NULL
        -- A partial wave explains at most the imbalance of the SMs that it leaves without work.
        WHEN subclass = 'tail' AND wave_loss_pct >= coalesce(imbalance_pct, 0) / 2 THEN 'partial_wave'
        WHEN subclass = 'tail' THEN 'imbalance'
        WHEN subclass = 'occupancy' THEN limiters[1]
        WHEN rule = 'small_grid' AND subclass IS DISTINCT FROM 'small_grid' THEN 'small_grid'
        WHEN bound = 'latency' AND subclass != 'memory'
            THEN if(
                is_divergent(threads_per_inst, threads_per_warp, threshold('compute.divergent_threads')),
                'divergence', NULL
            )
        WHEN spills THEN 'local_spill'
        WHEN uses_local THEN 'local_memory'
        WHEN uncoalesced THEN 'uncoalesced'
        WHEN coalesce(subclass IN ('l1', 'shared') OR stall_family = 'shared', false)
            AND conflict_pct >= 100 * threshold('memory.conflict_share')
            THEN 'bank_conflict'
        WHEN atomic_pct >= 100 * threshold('memory.atomic_share')
            AND (bound = 'memory' OR atomic_stall_pct >= 100 * threshold('memory.atomic_stall_share'))
            THEN 'atomics'
    END AS cause
FROM subclasses;
