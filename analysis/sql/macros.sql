-- Rounds to 0.1 like the statistics of nsys: the exact value of the double is rounded (36786.85 is stored as
-- a slightly smaller value and gives 36786.8), and exact halves (x.25, x.75) are rounded away from zero.
CREATE MACRO round_tenth(x) AS
    CASE
        WHEN x * 4 = floor(x * 4) AND x * 2 != floor(x * 2) THEN sign(x) * (floor(abs(x) * 10) + 1) / 10
        ELSE printf('%.1f', x::DOUBLE)::DOUBLE
    END;

-- A kernel name that is the same in nsys, .ncu-rep and ncu's CSV pages: the CSV pages omit casts of
-- literals, (int)8, and some namespaces, so all casts and namespaces are removed.
CREATE MACRO kernel_key(name) AS
    regexp_replace(
        regexp_replace(name, '\([A-Za-z_][A-Za-z_0-9: ]*\)(-?[0-9])', '\1', 'g'),
        '([A-Za-z_][A-Za-z_0-9]*|<unnamed>)::', '', 'g'
    );

-- Sum of doubles that does not depend on the order of rows, and therefore not on the number of threads.
CREATE MACRO ordered_sum(x) AS sum(x ORDER BY x);

-- Mean of `x` weighted by time, over rows in which both are known.
CREATE MACRO time_weighted(x, duration_ns) AS
    ordered_sum(x * duration_ns)
    / nullif(ordered_sum(CASE WHEN x IS NOT NULL THEN duration_ns END), 0);

-- Value of `x` in the longest launch in which `x` is known; the first launch if several are equally long.
CREATE MACRO of_longest(x, duration_ns, report_id, launch_id) AS
    first(x ORDER BY duration_ns DESC, report_id, launch_id)
        FILTER (x IS NOT NULL AND duration_ns IS NOT NULL);

-- Compute capability as a comparable number: '9.0' is 90, '12.1' is 121.
CREATE MACRO cc_number(cc) AS
    try_cast(split_part(cc, '.', 1) AS INTEGER) * 10 + try_cast(split_part(cc, '.', 2) AS INTEGER);

-- Roofline (Williams, Waterman, Patterson 2009): FLOP/s under the memory roof and the compute roof.
CREATE MACRO memory_roof_flop_per_s(intensity, bytes_per_s) AS intensity * bytes_per_s;
CREATE MACRO attainable_flop_per_s(peak_flop_per_s, intensity, bytes_per_s) AS
    CASE
        WHEN intensity * bytes_per_s < peak_flop_per_s THEN intensity * bytes_per_s
        ELSE peak_flop_per_s + 0 * intensity * bytes_per_s
    END;

-- SOL headroom, %: 0 for a SOL above 100 % (passes disagree), NULL for an unknown SOL.
CREATE MACRO headroom(sol_pct) AS CASE WHEN sol_pct > 100 THEN 0 ELSE 100 - sol_pct END;

-- A throughput in % of peak; NULL if it is too high for differences between passes to explain.
CREATE MACRO possible_pct(pct) AS CASE WHEN pct <= threshold('sol.possible_pct') THEN pct END;

-- Why a SOL is unknown although it was collected; NULL if it was not collected.
CREATE MACRO why_no_sol(name, recorded, printed) AS
    CASE
        WHEN recorded IS NOT NULL THEN printf('%s SOL is %.1f %%, which is impossible', name, recorded)
        WHEN printed IS NOT NULL THEN printf('ncu printed %s for %s SOL', printed, name)
    END;

-- How much longer the busiest SM is active than the average SM, % of the busiest SM's active time.
CREATE MACRO sm_imbalance_pct(active_cycles, active_cycles_max) AS
    100 * (active_cycles_max - active_cycles) / nullif(active_cycles_max, 0);

-- Bytes used per sector by global loads or stores, whichever uses fewer; a direction with a small share of
-- the sectors does not count.
CREATE MACRO used_bytes_per_sector(load_bytes, load_sectors, store_bytes, store_sectors) AS
    least(
        CASE WHEN is_small_share(load_sectors, store_sectors) THEN NULL ELSE load_bytes END,
        CASE WHEN is_small_share(store_sectors, load_sectors) THEN NULL ELSE store_bytes END
    );
CREATE MACRO is_small_share(sectors, others) AS
    coalesce(sectors < threshold('memory.direction_share') * (sectors + others), false);

-- Share of a part in loads and stores together; a direction counts only if its part and whole are known.
CREATE MACRO share_of_pairs(load_part, load_whole, store_part, store_whole) AS
    list_sum([load_part + 0 * load_whole, store_part + 0 * store_whole])
    / nullif(list_sum([load_whole, store_whole]), 0);

-- Mean number of threads per warp of a block: below 32 if the size of the block is not a multiple of 32.
CREATE MACRO threads_per_warp(block_size) AS block_size / nullif(ceil(block_size / 32), 0);

-- Whether a block has less than one warp of threads, or leaves many lanes of its warps without a thread.
CREATE MACRO is_narrow(block_size) AS
    threads_per_warp(block_size) < 32
    AND (block_size < 32 OR 1 - threads_per_warp(block_size) / 32 >= threshold('compute.idle_lane_share'));

-- Lanes of a block's warps that have no thread, as text, such as 28 of 32 lanes.
CREATE MACRO idle_lanes_text(block_size) AS printf(
    '%d of %d lanes', (32 * ceil(block_size / 32) - block_size)::BIGINT, (32 * ceil(block_size / 32))::BIGINT
);

-- Block sizes as text, such as blocks of 4 threads.
CREATE MACRO blocks_text(block_size) AS
    printf('blocks of %d %s', block_size::BIGINT, if(block_size = 1, 'thread', 'threads'));

-- Options of ncu that collect the limiter of a bound.
CREATE MACRO sections_for(bound) AS
    CASE bound
        WHEN 'latency' THEN '--section WarpStateStats --section SchedulerStats'
        WHEN 'compute' THEN '--section ComputeWorkloadAnalysis'
        ELSE '--section MemoryWorkloadAnalysis'
    END;

-- Whether fewer threads per instruction are active than `least` of 32, relative to the threads that a warp
-- has: lanes without a thread are not divergence.
CREATE MACRO is_divergent(threads_per_inst, per_warp, least) AS
    threads_per_inst < least / 32 * coalesce(per_warp, 32);

-- Whether all arguments of a kernel are numbers that need no FP64, or pointers to them, and some are float;
-- false if the name has no arguments, or arguments whose content is unknown.
CREATE MACRO has_float_arguments(full_name) AS
    regexp_matches(
        regexp_extract(full_name, '\(([^()]*)\)( \[clone [^\]]*\])?$', 1),
        '^((const|volatile|restrict|__restrict__|unsigned|signed|bool|char|short|int|long|size_t'
        || '|__half2?|half2?|float[1-4]?|u?(char|short|int|long)[1-4]|u?int(8|16|32|64)_t'
        || '|curandState\w*|cudaTextureObject_t)\b|[*&, ])+$'
    )
    AND regexp_matches(full_name, '\bfloat[1-4]?\b')
    AND NOT regexp_matches(full_name, 'double|(?i:f64|fp64|float64)');

-- Whether global accesses use less than half of the sectors that they move: in one direction, or in total
-- according to the counts by source line.  NULL if neither was collected.
CREATE MACRO is_uncoalesced(bytes_per_sector, excess_pct) AS
    coalesce(bytes_per_sector < 32 * threshold('memory.bytes_per_sector_share'), false)
    OR excess_pct >= 100 * threshold('memory.bytes_per_sector_share');

-- Sort key of a confidence: high first.
CREATE MACRO confidence_order(confidence) AS list_position(['high', 'medium', 'low'], confidence);

-- Name of a SOL: its metric, or what replaces it.
CREATE MACRO sol_name(metric, of_units) AS concat(if(of_units, 'largest main constituent of ', ''), metric);

-- Share of the tensor peak that a busy tensor pipe reaches, %: warp-level matrix instructions cannot reach
-- the peak.
CREATE MACRO of_tensor_peak(tensor_pct, mma_sync_pct) AS tensor_pct * coalesce(mma_sync_pct, 100) / 100;

-- A rate as % of its peak; NULL if the rate or the peak is unknown.
CREATE MACRO pct_of_peak(rate, peak) AS 100 * rate / nullif(peak, 0);

-- What to collect if tensor operations were not collected.
CREATE MACRO tensor_not_collected() AS
    'tensor operations not collected; use ncu --section SpeedOfLight_HierarchicalTensorRooflineChart';

-- Bound at an intensity (FLOP/byte) by a rule of thumb; the GPU's ridge point is exact.
CREATE MACRO intensity_band(intensity) AS
    CASE
        WHEN intensity < threshold('intensity.memory') THEN 'memory'
        WHEN intensity <= threshold('intensity.compute') THEN 'mixed'
        WHEN intensity IS NOT NULL THEN 'compute'
    END;

-- Integer quotient of a and b; DuckDB's // divides doubles without rounding.
CREATE MACRO whole_times(a, b) AS floor(a / nullif(b, 0))::BIGINT;

-- Title of NVIDIA's SOLBottleneck rule for a compute and a memory SOL (%) and the waves of the grid.
CREATE MACRO sol_bottleneck(compute, memory, waves) AS
    CASE
        WHEN compute IS NULL OR memory IS NULL THEN NULL
        WHEN compute >= threshold('sol.high_pct') OR memory >= threshold('sol.high_pct')
            THEN 'High Throughput'
        WHEN compute < threshold('sol.latency_pct') AND memory < threshold('sol.latency_pct') THEN
            CASE WHEN waves < threshold('sol.full_wave') THEN 'Small Grid' ELSE 'Latency Issue' END
        WHEN abs(compute - memory) < threshold('sol.balanced_points') THEN 'Balanced Throughput'
        WHEN compute > memory THEN 'High Compute Throughput'
        ELSE 'High Memory Throughput'
    END;

-- A value that a verdict is based on, with its threshold.
CREATE MACRO evidence(name, measured, compared_with, in_unit) AS
    {metric: name, value: measured, threshold: compared_with, unit: in_unit};
