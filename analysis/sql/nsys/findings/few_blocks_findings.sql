-- GPUs that spend much of the analyzed window in long kernels with too few blocks to occupy half of the SMs,
-- while no other kernel runs. Communication kernels are excluded, because they need few SMs.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- kernels BIGINT: number of launches
-- kernel_ns BIGINT: sum of the durations of these launches, ns
-- longest VARCHAR: short name, as in kernel_names, of the kernel and grid that takes the most time
-- blocks BIGINT: number of blocks of this kernel
-- threads BIGINT: number of threads in each of its blocks
-- lanes VARCHAR: lanes of a block's warps that have no thread, as text; NULL if its warps are full, or nearly
-- longest_pct DOUBLE: time of this kernel, % of the window
-- sm_count BIGINT: number of SMs of the GPU
-- share_pct DOUBLE: kernel_ns as a percentage of the window
-- gain_pct DOUBLE: upper bound on the gain, %: the time that the kernels would save if their work were
--   spread evenly over all SMs in whole warps; NULL if several of them run at the same time
/* finding
claim = "few_blocks"
says = "runs kernels that have too few blocks for its SMs"
evidence = """\
{{ blocks | counted('block') }} of {{ threads | counted('thread') }} in a launch of {{ longest }}, on a \
GPU with {{ sm_count }} SMs{% if lanes %}, where {{ lanes }} of each block have no thread{% endif %}; \
long kernels with less than one block for every second SM take {{ share }} \
({{ kernels | counted('launch') }} of {{ kernel_ns | ns }} in total)"""
question = "SELECT longest, blocks, threads, sm_count, kernels, kernel_ns, share_pct FROM few_blocks_findings"

[columns]
time_ns = "kernel_ns"
launches = "kernels"

[assumes]
all_sms = "the work of these kernels were spread evenly over all SMs, in whole warps"

[techniques.fill_sms]
technique = "Launch enough blocks to fill the GPU"
detail = """\
A block runs on one SM, so a kernel with fewer blocks than SMs leaves the other SMs idle; with fewer \
than 32 threads in a block, lanes of its warp are idle as well, and with fewer than four warps, warp \
schedulers of the SM have nothing to issue. Give each thread one element, or \
few, in a grid-stride loop (at least two blocks of 128 to 256 threads per SM), split long reductions \
over several blocks, process several problems in one launch, or run independent kernels on separate \
streams."""
check_first = """\
How the launch computes its grid, and whether the work of a thread depends on the work of others."""
difficulty = "low"
link = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#thread-and-block-heuristics"
*/
CREATE VIEW few_blocks_findings AS
WITH sparse AS (
    SELECT
        k.track, s.report_id, k.name, coalesce(k.demangled, k.name) AS full_name,
        k.start_ns, k.end_ns, k.dur_ns,
        k.grid_x * k.grid_y * k.grid_z AS blocks,
        k.block_x * k.block_y * k.block_z AS threads,
        s.sm_count
    FROM _analysed_kernels AS k
    JOIN _gpu_sms AS s USING (track)
    WHERE k.dur_ns >= threshold('timeline.long_kernel_ns')
        AND k.grid_x * k.grid_y * k.grid_z < s.sm_count * threshold('timeline.few_blocks_share')
),
named AS (
    SELECT s.report_id, s.name, s.full_name, coalesce(n.short_name, s.name) AS short_name
    FROM (SELECT DISTINCT report_id, name, full_name FROM sparse) AS s
    LEFT JOIN kernel_names AS n ON n.report_id = s.report_id AND n.demangled = s.full_name
    WHERE NOT is_communication(s.name, s.full_name)
),
-- Only tracks on which such kernels take enough time are searched for other kernels beside them.
candidates AS (
    SELECT s.* REPLACE (n.short_name AS name)
    FROM sparse AS s
    JOIN named AS n ON n.report_id = s.report_id AND n.name = s.name AND n.full_name = s.full_name
    JOIN _gpus AS g USING (track)
    JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
    QUALIFY 100.0 * sum(s.dur_ns) OVER (PARTITION BY s.track)
        >= threshold('timeline.contributor_pct') * any_value(v.time_ns) OVER (PARTITION BY s.track)
),
others AS (
    SELECT
        track,
        start_ns,
        end_ns,
        max(end_ns) OVER earlier AS until_ns,
        lead(start_ns) OVER (PARTITION BY track ORDER BY start_ns, end_ns) AS next_ns
    FROM _ops
    WHERE class != 'transfer' AND track IN (SELECT track FROM candidates)
    WINDOW earlier AS (
        PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
alone AS (
    SELECT c.*
    FROM candidates AS c
    SEMI JOIN (
        FROM others
        WHERE coalesce(until_ns <= start_ns, true) AND coalesce(next_ns >= end_ns, true)
    ) AS o ON o.track = c.track AND o.start_ns = c.start_ns AND o.end_ns = c.end_ns
),
alike AS (
    SELECT track, name, blocks, threads, any_value(sm_count) AS sm_count, count(*) AS kernels,
        sum(dur_ns) AS kernel_ns,
        sum(dur_ns) * (1 - blocks / any_value(sm_count) * coalesce(threads_per_warp(threads) / 32, 1))
            AS saved_ns
    FROM alone
    GROUP BY track, name, blocks, threads
),
-- Where such kernels run at the same time, their part of the SMs is unknown, and so is the gain.
whole AS (
    SELECT track, sum(dur_ns) AS all_ns FROM candidates GROUP BY track
),
sums AS (
    SELECT
        track,
        sum(kernels)::BIGINT AS kernels,
        sum(kernel_ns)::BIGINT AS kernel_ns,
        sum(saved_ns ORDER BY name, blocks, threads) AS saved_ns,
        arg_max(
            {name: name, blocks: blocks, threads: threads, kernel_ns: kernel_ns, sm_count: sm_count},
            (kernel_ns, name, blocks, threads)
        ) AS most
    FROM alike
    GROUP BY track
)
SELECT
    g.report_id,
    g.device,
    s.kernels,
    s.kernel_ns,
    s.most.name AS longest,
    s.most.blocks AS blocks,
    s.most.threads AS threads,
    CASE WHEN is_narrow(s.most.threads) THEN idle_lanes_text(s.most.threads) END AS lanes,
    100.0 * s.most.kernel_ns / v.time_ns AS longest_pct,
    s.most.sm_count AS sm_count,
    100.0 * s.kernel_ns / v.time_ns AS share_pct,
    CASE
        WHEN s.kernel_ns >= threshold('timeline.alone_share') * w.all_ns
            THEN 100.0 * s.saved_ns / v.time_ns
    END AS gain_pct
FROM sums AS s
JOIN whole AS w USING (track)
JOIN _gpus AS g USING (track)
JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
ANTI JOIN benchmark_loops AS b ON b.report_id = g.report_id AND b.device = g.device
WHERE v.time_ns > 0 AND share_pct >= threshold('timeline.contributor_pct')
ORDER BY g.report_id, g.device;
