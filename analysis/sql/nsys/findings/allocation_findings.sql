-- GPUs that are idle for a notable share of the steady steps while the host allocates or frees device memory.
-- On average, the host makes at least one such call per step.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- calls BIGINT: number of calls during the steady steps that allocate or free device memory
-- per_step DOUBLE: number of allocating and freeing calls per step
-- call_ns BIGINT: total duration of the allocating and freeing calls, ns
-- idle_ns BIGINT: idle time of the GPU during the allocating and freeing calls, ns
-- share_pct DOUBLE: idle_ns as a percentage of the steady steps
-- gain_pct DOUBLE: upper bound on the gain from fewer calls, %: the total duration of the calls or the GPU's
--   total idle time, whichever is shorter. All of the GPU's idle time counts, because cudaFree waits for the
--   device and so keeps the host from running ahead
-- functions VARCHAR: names of the called functions with the number of calls, most frequent first
/* finding
claim = "allocation"
says = "waits while the host allocates or frees device memory during the steps"
evidence = """\
the steps contain {{ calls | counted('call') }} ({{ functions }}), {{ '%.1f' | format(per_step) }} per step, \
which take {{ call_ns | ns }} in total; the GPU idles during these calls for {{ share }}"""
category = "launch_overhead"
question = "SELECT calls, per_step, call_ns, idle_ns, share_pct, functions FROM allocation_findings"

[columns]
time_ns = "idle_ns"
launches = "calls"

[words]
allocation = "allocation of device memory"
[assumes]
allocation = "steps allocated no device memory and the GPU never waited for a launch"

[techniques.allocate_once]
technique = "Allocate device memory before the loop, or from a pool"
detail = """\
cudaMalloc and cudaFree are slow on the host, and cudaFree waits for the device. Allocate buffers once \
and use them in every step, or use stream-ordered allocation from a pool (cudaMallocAsync). By default, \
the pool gives free memory back to the system at each synchronization, and the next allocation maps it \
anew: set cudaMemPoolAttrReleaseThreshold of the pool to the memory that it may keep. A caching \
allocator that allocates in every step has run out of memory or is fragmented: use \
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, fewer distinct sizes or a smaller batch."""
check_first = """\
Which NVTX range contains the calls (api_calls, nvtx_range). In PyTorch, also check \
torch.cuda.memory_stats(): num_alloc_retries, and segments that grow in every step."""
difficulty = "low"
link = """\
https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/stream-ordered-memory-allocation.html"""
*/
CREATE VIEW allocation_findings AS
WITH calls AS (
    SELECT *
    FROM _analysed_calls
    WHERE name IN (
        SELECT name
        FROM _names
        WHERE kind = 'api'
            AND manages_memory(name)
    )
),
functions AS (
    SELECT report_id, device, name, count(*) AS calls, sum(end_ns - start_ns) AS call_ns
    FROM calls
    GROUP BY report_id, device, name
),
often AS (
    SELECT
        report_id,
        device,
        any_value(w.time_ns) AS time_ns,
        sum(f.calls) / any_value(w.steps) AS per_step,
        sum(f.calls)::BIGINT AS calls,
        sum(f.call_ns)::BIGINT AS call_ns,
        string_agg(printf('%s %d', f.name, f.calls), ', ' ORDER BY f.calls DESC, f.name) AS functions
    FROM functions AS f
    JOIN analysis_windows AS w USING (report_id, device)
    WHERE w.kind = 'steady'
    GROUP BY report_id, device
    HAVING per_step >= 1
),
idle AS (
    -- Calls of several threads may overlap: no more than the interval.
    SELECT
        i.report_id,
        i.device,
        least(
            sum(least(c.end_ns, i.end_ns) - greatest(c.start_ns, i.start_ns)), any_value(i.dur_ns)
        ) AS ns
    FROM _analysed_idle AS i
    JOIN calls AS c ON c.track = i.track AND c.start_ns < i.end_ns AND c.end_ns > i.start_ns
    GROUP BY i.report_id, i.device, i.track, i.op_id
),
waited AS (
    SELECT report_id, device, sum(ns)::BIGINT AS idle_ns
    FROM idle
    GROUP BY report_id, device
),
all_idle AS (
    SELECT report_id, device, sum(dur_ns) AS ns
    FROM _analysed_idle
    GROUP BY report_id, device
)
SELECT
    o.report_id,
    o.device,
    o.calls,
    o.per_step,
    o.call_ns,
    w.idle_ns,
    100.0 * w.idle_ns / nullif(o.time_ns, 0) AS share_pct,
    100.0 * least(a.ns, o.call_ns) / nullif(o.time_ns, 0) AS gain_pct,
    o.functions
FROM often AS o
JOIN waited AS w USING (report_id, device)
JOIN all_idle AS a USING (report_id, device)
WHERE share_pct >= threshold('timeline.launch_overhead_pct')
ORDER BY o.report_id, o.device;
