-- All findings of the reports in the query, in order of priority. Timeline findings come first, by bound on
-- the gain or else by share, followed by kernel classes that are not part of an operator finding. A timeline
-- finding that can save little comes after kernels that can save more, and kernels near their limit come
-- after other kernels. A long start-up comes before kernels that matter little. For kernel details, see
-- kernel_classes.
--
-- rank BIGINT: position in the list, from 1
-- subject VARCHAR: timeline or kernel
-- claim VARCHAR: near_limit, operator, single_precision, ranks_wait, start_skew (the ranks wait in the first
--   collective), or the bound of the finding
-- bound VARCHAR: category of timeline_bottleneck, readback, process_starts, operator, single_precision or
--   startup; for a kernel, bound of kernel_bottleneck
-- subclass VARCHAR: limiter of a kernel; name of the operator; main cause of a long start-up
-- cause VARCHAR: cause for a kernel, as in kernel_bottleneck
-- label VARCHAR: configuration or file of the timeline; NULL for a kernel
-- device BIGINT: physical GPU number of the timeline; NULL for a kernel
-- kernel_name VARCHAR: function name of the kernel; NULL for a timeline
-- short_name VARCHAR: short name of the kernel, as in kernel_names
-- grid VARCHAR: grid of the kernel in blocks, as x,y,z
-- block VARCHAR: block of the kernel in threads, as x,y,z
-- nvtx_path VARCHAR: NVTX ranges that enclose the kernel
-- part VARCHAR: part of the timeline: steady, whole, startup or step, as in analysis_windows; capture for
--   startup; between (first to last steady step) for process_starts
-- share_of VARCHAR: time to which the shares refer: step (the steady steps), steps (the steady steps of all
--   timelines, for kernels), timeline (another window of the timeline), timed (kernels that a benchmark
--   times), between (first to last steady step), capture (the time from the first CUDA call) or profile (all
--   profiled time)
-- share_pct DOUBLE: share of the time that share_of names, %
-- time_ns DOUBLE: total duration of the launches of the kernel, or of the operator in a step; duration of the
--   start-up, or of the idle intervals in which processes start, ns
-- launches BIGINT: number of launches of the kernel, or of the operator in a step; number of idle intervals,
--   for process_starts
-- compute_sol_pct DOUBLE: compute SOL of the kernel, mean weighted by duration, %
-- memory_sol_pct DOUBLE: memory SOL of the kernel, mean weighted by duration, %
-- headroom_pct DOUBLE: SOL headroom of a kernel: by how much its share would shrink if the same work ran at
--   100 % SOL, %
-- waiting_pct DOUBLE: share of the time in collectives that the GPU waits for other ranks, %; for ranks_wait
--   and start_skew
-- start_pct DOUBLE: share of this waiting time in the first collective, %
-- last_rank BIGINT: rank that most often arrives last; NULL if it is the rank of this GPU
-- last_pct DOUBLE: share of the collectives in which that rank arrives last, %
-- last_cause VARCHAR: category in which last_rank spends the most extra time compared with the rank of this
--   GPU; NULL if unknown
-- last_excess_ns DOUBLE: extra time of that rank in the category, ns; per step if there are steps
-- for_rank BIGINT: rank to which the technique applies; NULL if it applies to this GPU
-- readbacks BIGINT: number of small copies to the host, for readback
-- readbacks_per_step DOUBLE: number of small copies to the host per step; NULL without steps
-- readback_bytes BIGINT: size of the largest of these copies, bytes
-- slow_pct DOUBLE: share of the window in which the host repeatedly prepares the same launch, as in
--   timeline_findings, %
-- idle_in VARCHAR: where most of the idle time of the category occurs, in words
-- causes VARCHAR: causes of a long start-up, or the longest kernels of an operator, in words
-- largest_gap VARCHAR: longest idle interval of the category, in words
-- ncu_verdict VARCHAR: NVIDIA's verdict on the kernel
-- explanation VARCHAR: why the class of the kernel is uncertain or differs from NVIDIA's
-- bound_pct DOUBLE: upper bound on the gain, relative to the same time as share_pct, %: the largest bound of
--   the techniques of a timeline, the bound of the first technique for a kernel, or the bound of the first
--   technique for waiting ranks; NULL if no bound can be derived, and for startup, because a longer run does
--   not repeat the start-up
-- most_pct DOUBLE: value by which findings are ordered, %: bound_pct if known, else the share; the share of
--   kernels of a step is limited to the time that faster kernels can save, and the share of operators also by
--   the time in which the GPU waits for input
-- floor VARCHAR: what the bound assumes to stay unchanged, as in kernel_floors or timeline_findings
-- nvidia_pct DOUBLE: NVIDIA's estimate for that technique, % of the kernel's time; NULL without an estimate
-- confidence VARCHAR: high, medium or low
-- technique VARCHAR: key of the technique in the knowledge base: the technique with that bound, else the
--   first technique to try; NULL without a technique
-- reports VARCHAR[]: reports that the finding is based on
CREATE VIEW findings AS
WITH found AS (
    FROM _timeline_claims
    UNION ALL BY NAME
    SELECT
        'kernel' AS subject,
        CASE WHEN near_limit THEN 'near_limit' ELSE bound END AS claim,
        rank AS place,
        gain_pct AS bound_pct,
        n.short_name,
        k.* EXCLUDE (rank, near_limit, gain_pct, kernel_demangled, sol_pct)
    FROM kernel_classes AS k
    LEFT JOIN (SELECT demangled, min(short_name) AS short_name FROM _known_kernels GROUP BY ALL) AS n
        ON n.demangled = coalesce(k.kernel_demangled, k.kernel_name)
    LEFT JOIN (SELECT key, list(report_id) AS reports FROM _operator_kernels GROUP BY key) AS o
        ON o.key = kernel_key(coalesce(k.kernel_demangled, k.kernel_name))
    WHERE bound != 'unknown'
        AND NOT coalesce(list_has_all(o.reports, k.reports), false)
        -- Kernels that are hardly part of a step were only profiled.
        AND (share_of = 'profile' OR share_pct >= threshold('finding.min_gain_pct'))
),
ranked AS (
    SELECT
        *,
        coalesce(bound_pct, weight_pct, share_pct) AS most_pct,
        max(if(subject = 'kernel' AND claim != 'near_limit', bound_pct, NULL)) OVER () AS kernels_pct
    FROM found
)
SELECT
    row_number() OVER (
        ORDER BY
            CASE
                WHEN NOT recurs THEN 2
                WHEN subject = 'timeline'
                    AND most_pct < least(threshold('finding.minor_pct'), kernels_pct)
                    THEN 1.2
                WHEN subject = 'timeline' THEN 0
                WHEN most_pct < threshold('finding.small_pct') THEN 3
                WHEN claim = 'near_limit' THEN 1.5
                ELSE 1
            END,
            -- A technique that makes results less exact has to save more than others.
            CASE
                WHEN subject = 'timeline'
                    THEN most_pct * if(precision, threshold('finding.inexact_weight'), 1)
            END DESC,
            recurs IS NOT NULL,
            -- A CUDA graph cannot contain host code that uses the values read back.
            bound IS DISTINCT FROM 'readback',
            place
    ) AS rank,
    subject, claim, bound, subclass, cause, label, device, kernel_name,
    coalesce(short_name, kernel_name) AS short_name,
    grid, block, nvtx_path, part,
    share_of, share_pct, time_ns, launches, compute_sol_pct, memory_sol_pct, headroom_pct,
    waiting_pct, start_pct,
    last_rank, last_pct, last_cause, last_excess_ns, for_rank,
    readbacks, readbacks_per_step, readback_bytes,
    slow_pct, idle_in, causes, largest_gap, ncu_verdict, explanation,
    bound_pct, most_pct, floor, nvidia_pct, confidence, technique, reports
FROM ranked
ORDER BY rank;
