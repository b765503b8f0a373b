-- How well each configuration of a run uses the GPU: the work that the workload file states, over the
-- time that was measured without a profiler, beside what ncu counted in its kernels.
--
-- run_id: run
-- task_index: configuration, counted from 0
-- label: its parameters
-- dtype: type whose peak counts
-- size: largest of its whole-number parameters; NULL without any
-- series: its other parameters, as text: what tells lines apart where rates are drawn by size
-- size_class: small, medium or large
-- median_ms: time of an iteration, ms
-- model_flop_per_s: operations of the workload file over the median time, FLOP/s
-- mfu_pct: that of the vendor's dense peak of the type, %
-- hfu_pct: operations that the hardware executed in the profiled kernels over their time, of the same peak, %
-- intensity: operations for each byte that must move, FLOP/byte; both from the workload file
-- intensity_band: memory, mixed or compute by a rule of thumb (below 5, to 20, above)
-- ridge: intensity at which the vendor's peaks of this GPU meet, FLOP/byte
-- memory_roof_flop_per_s: intensity x the vendor's bandwidth, FLOP/s
-- roof: which roof is the lower: memory or compute
-- sol_pct: time that the lower roof would take of the measured time, %
-- effective_bytes_per_s: bytes that must move over the median time, byte/s
-- actual_bytes_per_s: DRAM bytes of the profiled kernels over their time, byte/s
-- kernel_name: profiled kernel that takes most of the time
-- bound: its class
-- subclass: where
-- registers: its registers per thread
-- smem_per_block: its shared memory per block, bytes
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
kernels AS (
    SELECT
        t.run_id,
        t.task_index,
        of_longest(l.kernel_name, l.duration_ns, l.report_id, l.launch_id) AS kernel_name,
        of_longest(b.bound, l.duration_ns, l.report_id, l.launch_id) AS bound,
        of_longest(b.subclass, l.duration_ns, l.report_id, l.launch_id) AS subclass,
        of_longest(o.registers, l.duration_ns, l.report_id, l.launch_id) AS registers,
        of_longest(o.smem_allocated, l.duration_ns, l.report_id, l.launch_id) AS smem_per_block,
        ordered_sum(f.flop)
            / nullif(ordered_sum(CASE WHEN f.flop IS NOT NULL THEN l.duration_ns END) / 1e9, 0)
            AS hardware_flop_per_s,
        time_weighted(m.dram_bytes_per_s, l.duration_ns) AS actual_bytes_per_s
    FROM sources AS t
    JOIN ncu_launches AS l USING (report_id)
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    JOIN kernel_occupancy AS o USING (report_id, launch_id)
    JOIN kernel_features AS f USING (report_id, launch_id)
    JOIN kernel_memory AS m USING (report_id, launch_id)
    GROUP BY t.run_id, t.task_index
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
rates AS (
    SELECT
        t.*,
        t.flops / nullif(t.median_ms / 1e3, 0) AS model_flop_per_s,
        t.bytes / nullif(t.median_ms / 1e3, 0) AS effective_bytes_per_s,
        t.flops / nullif(t.bytes, 0) AS intensity,
        p.flop_per_s AS peak,
        p.bytes_per_s AS bandwidth,
        k.* EXCLUDE (run_id, task_index)
    FROM tasks AS t
    LEFT JOIN peaks AS p ON p.run_id = t.run_id AND p.task_index = t.task_index AND p.dtype = t.dtype
    LEFT JOIN kernels AS k ON k.run_id = t.run_id AND k.task_index = t.task_index
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
    intensity,
    intensity_band(intensity) AS intensity_band,
    peak / nullif(bandwidth, 0) AS ridge,
    memory_roof_flop_per_s(intensity, bandwidth) AS memory_roof_flop_per_s,
    CASE
        WHEN memory_roof_flop_per_s(intensity, bandwidth) < peak THEN 'memory'
        WHEN memory_roof_flop_per_s(intensity, bandwidth) >= peak THEN 'compute'
    END AS roof,
    pct_of_peak(model_flop_per_s, attainable_flop_per_s(peak, intensity, bandwidth)) AS sol_pct,
    effective_bytes_per_s,
    actual_bytes_per_s,
    kernel_name,
    bound,
    subclass,
    registers,
    smem_per_block
FROM rates
ORDER BY run_id, size, task_index;
