-- The classes next to NVIDIA's own verdict: their confidence, and why they are uncertain or differ.
CREATE VIEW _bottleneck_judged AS
WITH ncu AS (
    SELECT report_id, launch_id, any_value(title ORDER BY result_index) AS title
    FROM ncu_rules
    WHERE rule = 'SOLBottleneck' AND title IS NOT NULL
    GROUP BY report_id, launch_id
),
judged AS (
    SELECT
        b.*,
        sol_bottleneck(b.compute_sol_pct, b.memory_sol_pct, b.waves) AS verdict,
        ncu.title,
        CASE ncu.title
            WHEN 'High Throughput' THEN b.bound IN ('compute', 'memory')
            WHEN 'High Compute Throughput' THEN b.bound = 'compute'
            WHEN 'High Memory Throughput' THEN b.bound = 'memory'
            WHEN 'Balanced Throughput' THEN b.bound = 'balanced'
            WHEN 'Latency Issue' THEN b.bound = 'latency'
            WHEN 'Small Grid' THEN b.bound IN ('launch', 'latency')
        END AS agrees,
        abs(b.max_sol_pct - threshold('sol.latency_pct')) < threshold('sol.borderline_points')
            OR (
                b.rule IN ('larger_sol', 'balanced')
                AND b.max_sol_pct < threshold('sol.high_pct')
                AND abs(abs(b.compute_sol_pct - b.memory_sol_pct) - threshold('sol.balanced_points'))
                    < threshold('sol.borderline_points')
            ) AS borderline
    FROM _bottleneck_class AS b
    LEFT JOIN ncu USING (report_id, launch_id)
)
SELECT
    *,
    CASE
        WHEN bound = 'unknown' THEN NULL
        WHEN rule = 'busy_level' OR passes_disagree OR (one_pass AND bound != 'memory') THEN 'low'
        WHEN borderline OR of_units OR rule IN ('issue', 'near_roof') THEN 'medium'
        WHEN subclass IS NULL AND bound != 'balanced' THEN 'medium'
        WHEN rule = 'imbalance' AND imbalance_pct IS NULL THEN 'medium'
        ELSE 'high'
    END AS confidence,
    CASE
        WHEN max_sol_pct >= threshold('sol.high_pct') THEN threshold('sol.high_pct')
        ELSE threshold('sol.latency_pct')
    END AS sol_threshold,
    nullif(concat_ws('; ',
        CASE
            WHEN bound = 'unknown' AND NOT one_pass THEN concat(
                if(compute_sol_pct IS NULL, 'compute SOL', 'memory SOL'),
                ' was not collected: ncu --section SpeedOfLight'
            )
        END,
        CASE WHEN rule = 'imbalance' AND imbalance_pct IS NULL
            THEN printf('SM activity was not collected; a grid of %.2f waves leaves SMs idle', waves) END,
        CASE
            WHEN rule = 'busy_level' THEN printf(
                'memory SOL is %.1f %%, which ncu reads as latency, but %s alone runs at %.1f %% of its '
                || 'peak: part of its work does not count towards memory SOL',
                memory_sol_pct, level, busiest_level_pct
            )
        END,
        CASE
            WHEN feeds_tensor THEN printf(
                'memory SOL, %.1f %%, is larger, but it comes from shared memory feeding a tensor pipe that '
                || 'is %.1f %% busy',
                memory_sol_pct, pipe_pct
            )
        END,
        CASE
            WHEN rule = 'issue' THEN printf(
                'both SOLs are low over the whole run, but while SMs are active the schedulers issue in '
                || '%.1f %% of cycles',
                issue_active_pct
            )
        END,
        CASE
            WHEN rule = 'near_roof' THEN printf(
                'the grid of %.2f waves leaves few SMs without work, and %s SOL, %.1f %%, is within '
                || '%.0f points of %.0f %%: it is both a little small and close to being %s-bound',
                waves,
                bound,
                max_sol_pct,
                threshold('sol.near_roof_points'),
                threshold('sol.latency_pct'),
                bound
            )
        END,
        CASE
            WHEN subclass = 'tensor' AND mma_sync_pct IS NOT NULL THEN printf(
                'it uses matrix instructions of a warp (mma.sync), which reach %.0f %% of the tensor peak of '
                || 'this GPU; those of a warpgroup (wgmma) reach all of it',
                mma_sync_pct
            )
            WHEN subclass IN ('fma', 'fp64', 'fp16')
                AND flops_pct < threshold('compute.flops_share') * pipe_pct
                THEN printf(
                    'the %s pipe is %.1f %% busy at %.1f %% of the FLOP peak: that counts fused '
                    || 'multiply-adds, and adds, multiplies and other instructions do half as much or less',
                    subclass, pipe_pct, flops_pct
                )
        END,
        CASE
            WHEN rule = 'launch' AND NOT agrees
                THEN 'shorter than the cost of a launch, with idle SMs: too small to be judged by SOL'
        END,
        CASE
            WHEN borderline THEN printf(
                'compute %.1f %% and memory %.1f %% are within %.0f points of a threshold',
                compute_sol_pct, memory_sol_pct, threshold('sol.borderline_points')
            )
        END,
        CASE
            WHEN one_pass
                THEN 'SOL is the largest of what one pass counts, and may be higher (ncu --set basic)'
            WHEN of_units THEN 'SOL is the largest of its main constituents (below 50 %, up to 5 points low)'
        END,
        if(passes_disagree, printf('SM clocks of its passes differ by %.1f %%', clock_drift_pct), NULL),
        CASE
            WHEN subclass IS NULL AND bound IN ('latency', 'compute', 'memory') THEN concat(
                'the limiter was not collected: ncu --section ',
                CASE bound
                    WHEN 'latency' THEN 'WarpStateStats'
                    WHEN 'compute' THEN 'ComputeWorkloadAnalysis'
                    ELSE 'MemoryWorkloadAnalysis'
                END
            )
        END
    ), '') AS explanation
FROM judged;
