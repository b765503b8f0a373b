-- GPU efficiency of each configuration of a run: the work declared in the workload file divided by the time
-- measured without a profiler, and the work that ncu counted in the kernels.
--
-- run_id VARCHAR: run
-- task_index BIGINT: configuration, counted from 0
-- label VARCHAR: parameters of the configuration as text
-- dtype VARCHAR: data type whose vendor peak is used
-- size BIGINT: largest integer parameter; NULL without an integer parameter
-- series VARCHAR: other parameters as text; configurations with the same text form one line in the plot of
--   throughput against size
-- size_class VARCHAR: size class, derived from size: small, medium or large; NULL without a size
-- median_ms DOUBLE: median iteration time, ms
-- model_flop_per_s DOUBLE: FLOPs declared in the workload file / median time, FLOP/s
-- mfu_pct DOUBLE: MFU: model_flop_per_s, % of the vendor's dense peak for the data type
-- hfu_pct DOUBLE: HFU: FLOPs that the hardware executed in the profiled kernels / duration of these kernels,
--   % of the dense peak; NULL if some FLOPs of a kernel were not counted
-- hfu_reason VARCHAR: why hfu_pct is NULL, and what to collect
-- intensity DOUBLE: arithmetic intensity of the algorithm: FLOPs / bytes declared in the workload file,
--   FLOP/byte
-- intensity_band VARCHAR: memory, mixed or compute by a rule of thumb (below 5, 5 to 20, above 20)
-- ridge DOUBLE: ridge point: the vendor's peak / bandwidth of memory_level, FLOP/byte
-- memory_level VARCHAR: memory whose bandwidth is the roof: l2 if an iteration's bytes fit in the L2 size
--   that ncu reports, else dram
-- memory_roof_flop_per_s DOUBLE: intensity x bandwidth of memory_level, FLOP/s; uses the vendor's bandwidth
--   for DRAM, and the bandwidth at ncu's clock for L2; NULL if unknown
-- peak_flop_per_s DOUBLE: dense peak of the GPU for the data type, FLOP/s; NULL if unknown
-- roof VARCHAR: the lower of the two roofs: memory or compute
-- sol_pct DOUBLE: time that the work would take at the lower roof, % of the measured time
-- effective_bytes_per_s DOUBLE: effective bandwidth: bytes that the algorithm must move / median time, byte/s
-- actual_bytes_per_s DOUBLE: DRAM bytes of the profiled kernels / duration of these kernels, byte/s
-- kernel_name VARCHAR: profiled kernel that takes the most time
-- library VARCHAR: library of the kernel in kernel_name, as in kernel_libraries
-- bound VARCHAR: bound of the kernel in kernel_name, as in kernel_bottleneck
-- subclass VARCHAR: limiter of the kernel in kernel_name
-- registers BIGINT: registers per thread of the kernel in kernel_name
-- smem_per_block BIGINT: shared memory per block of the kernel in kernel_name, bytes
CREATE VIEW run_efficiency AS
WITH tasks AS (
    SELECT
        *,
        list_max(list_transform(
            map_values(params::JSON::MAP(VARCHAR, VARCHAR)), lambda value: TRY_CAST(value AS BIGINT)
        )) AS size,
        array_to_string(list_transform(
            list_filter(
                map_entries(params::JSON::MAP(VARCHAR, VARCHAR)),
                lambda entry: entry.value IS DISTINCT FROM size::VARCHAR
            ),
            lambda entry: concat(entry.key, '=', entry.value)
        ), ' ') AS series
    FROM run_tasks
),
sources AS (
    SELECT run_id, task_index, unnest(reports) AS report_id
    FROM tasks
),
peaks AS (
    SELECT
        t.run_id,
        t.task_index,
        p.dtype,
        max(p.flop_per_s) AS flop_per_s,
        max(p.bytes_per_s) AS bytes_per_s
    FROM sources AS t
    JOIN gpu_peaks AS p USING (report_id)
    GROUP BY t.run_id, t.task_index, p.dtype
),
-- Counters of the kernels of each configuration of a run, from ncu.
task_kernels AS (
    SELECT
        t.run_id,
        t.task_index,
        of_longest(l.kernel_name, l.duration_ns, l.report_id, l.launch_id) AS kernel_name,
        of_longest(y.library, l.duration_ns, l.report_id, l.launch_id) AS library,
        of_longest(b.bound, l.duration_ns, l.report_id, l.launch_id) AS bound,
        of_longest(b.subclass, l.duration_ns, l.report_id, l.launch_id) AS subclass,
        of_longest(o.registers, l.duration_ns, l.report_id, l.launch_id) AS registers,
        of_longest(o.smem_allocated, l.duration_ns, l.report_id, l.launch_id) AS smem_per_block,
        CASE WHEN count(f.flop) = count(*) THEN ordered_sum(f.flop) END
            / nullif(ordered_sum(l.duration_ns) / 1e9, 0) AS hardware_flop_per_s,
        max(f.reason) AS hfu_reason,
        time_weighted(m.dram_bytes_per_s, l.duration_ns) AS actual_bytes_per_s,
        max(w.l2_cache_bytes) AS l2_cache_bytes,
        max(r.peak_bytes_per_s) AS l2_bytes_per_s
    FROM sources AS t
    JOIN ncu_launches AS l USING (report_id)
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    JOIN kernel_libraries AS y USING (report_id, launch_id)
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    JOIN _launch_flops AS f USING (report_id, launch_id)
    JOIN kernel_memory AS m USING (report_id, launch_id)
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    LEFT JOIN _kernel_traffic AS r
        ON r.report_id = l.report_id AND r.launch_id = l.launch_id AND r.level = 'l2'
    GROUP BY t.run_id, t.task_index
),
rates AS (
    SELECT
        t.*,
        t.flops / nullif(t.median_ms / 1e3, 0) AS model_flop_per_s,
        t.bytes / nullif(t.median_ms / 1e3, 0) AS effective_bytes_per_s,
        t.flops / nullif(t.bytes, 0) AS intensity,
        p.flop_per_s AS peak,
        -- Data that fits in L2 stays there from one iteration to the next.
        coalesce(t.bytes < k.l2_cache_bytes, false) AS fits,
        CASE WHEN fits THEN k.l2_bytes_per_s ELSE p.bytes_per_s END AS bandwidth,
        k.* EXCLUDE (run_id, task_index, l2_cache_bytes, l2_bytes_per_s)
    FROM tasks AS t
    LEFT JOIN peaks AS p ON p.run_id = t.run_id AND p.task_index = t.task_index AND p.dtype = t.dtype
    LEFT JOIN task_kernels AS k ON k.run_id = t.run_id AND k.task_index = t.task_index
)
SELECT
    run_id,
    task_index,
    label,
    dtype,
    size,
    series,
    CASE
        WHEN size <= threshold('size.small') THEN 'small'
        WHEN size >= threshold('size.large') THEN 'large'
        WHEN size IS NOT NULL THEN 'medium'
    END AS size_class,
    median_ms,
    model_flop_per_s,
    pct_of_peak(model_flop_per_s, peak) AS mfu_pct,
    pct_of_peak(hardware_flop_per_s, peak) AS hfu_pct,
    CASE WHEN kernel_name IS NULL THEN 'no kernel was profiled with ncu' ELSE hfu_reason END AS hfu_reason,
    intensity,
    intensity_band(intensity) AS intensity_band,
    peak / nullif(bandwidth, 0) AS ridge,
    if(fits, 'l2', 'dram') AS memory_level,
    memory_roof_flop_per_s(intensity, bandwidth) AS memory_roof_flop_per_s,
    peak AS peak_flop_per_s,
    CASE
        WHEN memory_roof_flop_per_s(intensity, bandwidth) < peak THEN 'memory'
        WHEN memory_roof_flop_per_s(intensity, bandwidth) >= peak THEN 'compute'
    END AS roof,
    pct_of_peak(model_flop_per_s, attainable_flop_per_s(peak, intensity, bandwidth)) AS sol_pct,
    effective_bytes_per_s,
    actual_bytes_per_s,
    kernel_name,
    library,
    bound,
    subclass,
    registers,
    smem_per_block
FROM rates
ORDER BY run_id, size, task_index;
