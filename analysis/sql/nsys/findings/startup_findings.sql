-- GPUs whose program has a long start-up phase, with the time before the first steady step as a percentage
-- of the capture. Start-up does not recur and is not part of a step, so do not add its share to the shares
-- in timeline_findings. A GPU has a row only if its steady steps are analyzed and start-up takes a notable
-- part of the program's total run time.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- startup_ns BIGINT: time from the first CUDA call to the first steady step, excluding other loops, ns
-- capture_ns BIGINT: time from the first CUDA call to the end of the last operation on the GPU, ns
-- share_pct DOUBLE: startup_ns as a percentage of capture_ns; this is also the upper bound on the gain
-- causes VARCHAR: causes of the start-up time, as text; causes below 2 % are omitted, and other loops are
--   listed last
-- cause VARCHAR: largest cause of the start-up time: loading (modules and first uses of kernels), context,
--   allocation, communicator, autotuning, compilation or graph (capture); program if no cause reaches 25 %
-- technique VARCHAR: key of the technique in the knowledge base
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
/* finding
claim = "startup"
says = "has a long start-up phase"
evidence = """\
start-up, from the first CUDA call to the first steady step, takes {{ startup_ns | ns }}, {{ share }}; \
{{ causes }}"""
question = "SELECT device, cause, calls, time_ns, share_pct FROM startup_causes"
part = "capture"
largest = "startup_ns"
recurs = false

[columns]
subclass = "cause"
time_ns = "startup_ns"

[techniques.cache_tuned]
technique = "Cache autotuning results"
detail = """\
At every start, compilers and libraries time many kernels to choose the fastest. JAX: a persistent \
compilation cache (JAX_COMPILATION_CACHE_DIR) stores the choices, \
XLA_FLAGS=--xla_gpu_per_fusion_autotune_cache_dir=DIR stores the choices for fusions, and \
--xla_gpu_autotune_level limits the number of candidates. PyTorch: TORCHINDUCTOR_CACHE_DIR; mode \
max-autotune and cudnn.benchmark tune again for each shape."""
check_first = "Whether a second run tunes again (startup_causes), and how many shapes there are."
of = "autotuning"
difficulty = "low"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"

[techniques.cache_compiled]
technique = "Cache compiled code on disk, or compile ahead of time"
detail = """\
Point the caches of the compilers to a directory that outlives the process (TORCHINDUCTOR_CACHE_DIR, \
TRITON_CACHE_DIR, JAX_COMPILATION_CACHE_DIR, CUDA_CACHE_PATH). Build for the architecture of this GPU, so \
that no PTX is compiled at load time. Keep shapes and options the same, because each combination is \
compiled separately."""
check_first = "What is compiled, and whether a second run compiles it again (startup_causes; nvtx_ranges)."
of = "compilation"
difficulty = "low"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"

[techniques.fewer_communicators]
technique = "Create fewer communicators, and overlap their creation with other start-up work"
detail = """\
Each process group has its own communicator. Reuse groups, split one communicator (ncclCommSplit) instead \
of creating more, and create communicators while weights are loaded (non-blocking communicators)."""
check_first = "How many communicators are created, and when (nvtx_ranges: ncclCommInitRank)."
of = "communicator"
difficulty = "medium"
link = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html"

[techniques.fewer_allocations]
technique = "Allocate device memory once, from a pool"
detail = """\
cudaMalloc and cudaHostAlloc are slow and may synchronize. Reserve a pool at the start (a caching or \
stream-ordered allocator) instead of growing it call by call."""
check_first = "Number and size of the allocations (cuda_api_sum)."
of = "allocation"
difficulty = "low"
link = """\
https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/stream-ordered-memory-allocation.html"""

[techniques.keep_alive]
technique = "Keep one process running, or do less work before the first step"
detail = """\
Every process creates its own context, loads modules and kernels, captures graphs, and reads its input. \
Serve many requests from one process, or run several jobs in it. Read weights and data while kernels are \
loaded. In a long run, start-up hardly matters: profile more steps to confirm."""
check_first = """\
The largest causes (startup_causes), and what the program does during start-up (python -X importtime, \
py-spy, perf)."""
difficulty = "medium"
link = "https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/lazy-loading.html"
*/
CREATE VIEW startup_findings AS
WITH parted AS (
    SELECT
        *,
        coalesce(
            sum(time_ns) FILTER (cause = 'other loops') OVER (PARTITION BY report_id, device), 0
        )::BIGINT AS loops_ns
    FROM startup_causes
),
causes AS (
    SELECT
        * REPLACE (100.0 * time_ns / nullif(startup_ns - loops_ns, 0) AS share_pct),
        CASE
            WHEN cause IN ('module loading', 'first uses of kernels') THEN 'loading'
            WHEN cause = 'everything else' THEN 'program'
            ELSE split_part(cause, ' ', 1)
        END AS kind,
        concat(
            CASE WHEN cause = 'everything else' THEN 'the program itself' ELSE cause END,
            if(time_ns < 1e9, printf(' %.0f ms', time_ns / 1e6), printf(' %.2f s', time_ns / 1e9))
        ) AS text
    FROM parted
    WHERE cause != 'other loops'
),
kinds AS (
    SELECT report_id, device, kind, sum(share_pct ORDER BY share_pct) AS share_pct
    FROM causes
    WHERE kind != 'program'
    GROUP BY report_id, device, kind
),
worded AS (
    SELECT
        report_id,
        device,
        any_value(process_id) AS process_id,
        any_value(startup_ns) - loops_ns AS startup_ns,
        any_value(startup_ns) AS until_ns,
        concat_ws(
            '; ',
            string_agg(text, ', ' ORDER BY kind = 'program', time_ns DESC, cause) FILTER (share_pct >= 2),
            if(loops_ns >= 5e6, printf('excluding %.2f s in other loops', loops_ns / 1e9), NULL)
        ) AS causes
    FROM causes
    GROUP BY report_id, device, loops_ns
),
long AS (
    SELECT
        w.*,
        w.until_ns + p.end_ns - v.start_ns AS capture_ns,
        coalesce((
            SELECT arg_max(k.kind, (k.share_pct, k.kind))
            FROM kinds AS k
            WHERE k.report_id = w.report_id
                AND k.device IS NOT DISTINCT FROM w.device
                AND k.share_pct >= threshold('timeline.named_pct')
        ), 'program') AS cause
    FROM worded AS w
    JOIN _gpus AS g ON g.report_id = w.report_id AND g.device IS NOT DISTINCT FROM w.device
    JOIN _spans AS p USING (track)
    JOIN analysis_windows AS v ON v.report_id = w.report_id AND v.device IS NOT DISTINCT FROM w.device
    WHERE v.kind = 'steady' AND w.startup_ns >= threshold('timeline.startup_ns')
),
shared AS (
    SELECT *, 100.0 * startup_ns / nullif(capture_ns, 0) AS share_pct
    FROM long
)
SELECT
    s.report_id,
    s.device,
    s.process_id,
    s.startup_ns,
    s.capture_ns,
    s.share_pct,
    s.causes,
    s.cause,
    t.technique,
    t.difficulty
FROM shared AS s
JOIN _techniques AS t ON t.bound = 'startup' AND t.subclass IN (s.cause, '*')
LEFT JOIN _program_times AS p ON p.report_id = s.report_id
WHERE s.share_pct >= threshold('timeline.contributor_pct')
    AND coalesce(100 * s.startup_ns >= threshold('timeline.contributor_pct') * p.program_ns, true)
QUALIFY row_number() OVER (PARTITION BY s.report_id, s.device ORDER BY t.subclass = '*', t.rank) = 1
ORDER BY s.report_id, s.device;
