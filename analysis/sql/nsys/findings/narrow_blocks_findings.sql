-- GPUs that spend much of the analyzed window in kernels whose blocks leave lanes of their warps without a
-- thread: blocks of fewer than 32 threads, or whose last warp has many such lanes. Excluded are library
-- kernels, whose block size the user cannot change, very short kernels, grids of fewer blocks than SMs (see
-- few_blocks_findings), and AMD GPUs, whose warps may have 64 lanes.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- kernels BIGINT: number of launches
-- kernel_ns BIGINT: sum of the durations of these launches, ns
-- longest VARCHAR: short name, as in kernel_names, of the kernel and block size that takes the most time
-- threads BIGINT: number of threads in a block of this kernel
-- blocks VARCHAR: its blocks as text, such as blocks of 4 threads
-- lanes VARCHAR: lanes of such a block's warps that have no thread, as text
-- share_pct DOUBLE: time in which any of these launches runs, as a percentage of the window
-- gain_pct DOUBLE: upper bound on the gain, %: the part of this time that corresponds to the lanes without a
--   thread, if instruction issue or arithmetic limits the kernels; NULL if several of the launches run at the
--   same time
/* finding
claim = "narrow_blocks"
says = "runs kernels whose blocks leave lanes of their warps idle"
evidence = """\
{{ blocks }} leave {{ lanes }} idle in {{ longest }}; kernels with such blocks take {{ share }} \
({{ kernels | counted('launch') }} of {{ kernel_ns | ns }} in total)"""
question = "SELECT longest, threads, lanes, kernels, kernel_ns, share_pct FROM narrow_blocks_findings"
confidence = "medium"

[columns]
time_ns = "kernel_ns"
launches = "kernels"

[assumes]
full_warps = "instruction issue or arithmetic limited these kernels, and full warps did their work"
*/
CREATE VIEW narrow_blocks_findings AS
WITH narrow AS (
    SELECT
        k.track,
        s.report_id,
        coalesce(k.demangled, k.name) AS demangled,
        k.block_x * k.block_y * k.block_z AS threads,
        k.start_ns,
        k.end_ns,
        k.dur_ns
    FROM _analysed_kernels AS k
    JOIN _gpu_sms AS s USING (track)
    WHERE is_narrow(k.block_x * k.block_y * k.block_z)
        AND k.grid_x * k.grid_y * k.grid_z >= s.sm_count
        AND k.dur_ns >= threshold('launch.short_ns')
        AND NOT coalesce(starts_with(s.gpu, 'AMD'), false)
),
named AS (
    SELECT w.* EXCLUDE (report_id, demangled), n.short_name, max(w.end_ns) OVER earlier AS until_ns
    FROM narrow AS w
    JOIN kernel_names AS n ON n.report_id = w.report_id AND n.demangled = w.demangled
    WHERE NOT is_closed(n.library)
    WINDOW earlier AS (
        PARTITION BY w.track ORDER BY w.start_ns, w.end_ns, n.short_name, w.threads
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
alike AS (
    SELECT
        track,
        short_name,
        threads,
        count(*) AS kernels,
        sum(dur_ns) AS kernel_ns,
        sum(beyond_ns(start_ns, end_ns, until_ns)) AS own_ns,
        sum(beyond_ns(start_ns, end_ns, until_ns)) * (1 - threads_per_warp(threads) / 32) AS saved_ns
    FROM named
    GROUP BY track, short_name, threads
),
sums AS (
    SELECT
        track,
        sum(kernels)::BIGINT AS kernels,
        sum(kernel_ns)::BIGINT AS kernel_ns,
        sum(own_ns) AS own_ns,
        sum(saved_ns ORDER BY short_name, threads) AS saved_ns,
        arg_max({name: short_name, threads: threads}, (kernel_ns, short_name, threads)) AS most
    FROM alike
    GROUP BY track
)
SELECT
    g.report_id,
    g.device,
    s.kernels,
    s.kernel_ns,
    s.most.name AS longest,
    s.most.threads AS threads,
    blocks_text(s.most.threads) AS blocks,
    idle_lanes_text(s.most.threads) AS lanes,
    100.0 * s.own_ns / v.time_ns AS share_pct,
    CASE
        WHEN s.own_ns >= threshold('timeline.alone_share') * s.kernel_ns THEN 100.0 * s.saved_ns / v.time_ns
    END AS gain_pct
FROM sums AS s
JOIN _gpus AS g USING (track)
JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
ANTI JOIN benchmark_loops AS b ON b.report_id = g.report_id AND b.device = g.device
WHERE v.time_ns > 0 AND share_pct >= threshold('timeline.contributor_pct')
ORDER BY g.report_id, g.device;
