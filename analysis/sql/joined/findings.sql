-- All findings for the reports in the query, by priority. Timeline findings come first, ordered by their
-- upper bound on the gain, or by their share if there is no bound. Readbacks that prevent a CUDA graph come
-- before launch overhead, launch overhead counts without the host work that it would hide, and a technique
-- that makes results less exact has to save more than others. Kernel classes that no operator finding
-- covers come next. A timeline finding that can save little comes after kernels that can save more, and
-- kernels near their limit come after other kernels. A long start-up comes before kernels that take little
-- time. Kernels of profiles that say little about the timelines come last. For kernel details, see
-- kernel_classes.
--
-- rank BIGINT: position in the list, from 1
-- subject VARCHAR: timeline or kernel
-- claim VARCHAR: type of finding: near_limit, setup (a kernel that prepares or checks the work), operator,
--   single_precision, ranks_wait, start_skew (ranks wait in the first collective), or the bound if none of
--   these applies
-- bound VARCHAR: for a timeline, a category of timeline_bottleneck, or readback, process_starts, operator,
--   single_precision or startup; for a kernel, the bound from kernel_bottleneck
-- subclass VARCHAR: limiter of a kernel, name of an operator, or main cause of a long start-up
-- cause VARCHAR: cause of a kernel's bound, as in kernel_bottleneck
-- label VARCHAR: configuration or file of the timeline; NULL for a kernel
-- device BIGINT: physical GPU number of the timeline; NULL for a kernel
-- kernel_name VARCHAR: function name of the kernel; NULL for a timeline
-- short_name VARCHAR: short name of the kernel, as in kernel_names
-- grid VARCHAR: grid dimensions of the kernel in blocks, as x,y,z
-- block VARCHAR: block dimensions of the kernel in threads, as x,y,z
-- nvtx_path VARCHAR: NVTX ranges that enclose the kernel
-- part VARCHAR: part of the timeline to which the finding refers: steady, whole, startup or step, as in
--   analysis_windows; capture for startup; between (first to last steady step) for process_starts; loop (the
--   steps after warm-up) for slow_rank; window (of the load that was captured) for findings on a server's
--   engine
-- share_of VARCHAR: reference time (100 %) for the share columns: step (the steady steps), steps (the steady
--   steps of all timelines, for kernels), timeline (another window of the timeline), timed (kernels that a
--   benchmark times), between (first to last steady step), loop (the steps after warm-up), capture (the time
--   from the first CUDA call), window (the captured window of a load) or profile (all profiled time)
-- share_pct DOUBLE: share of the reference time (share_of), %
-- time_ns DOUBLE: total duration of the kernel's launches, the operator's launches in a step, the start-up,
--   or the idle intervals in which processes start, ns
-- launches BIGINT: number of the kernel's launches, or of the operator's launches in a step; for
--   process_starts, number of idle intervals
-- compute_sol_pct DOUBLE: duration-weighted mean of the kernel's compute SOL, %
-- memory_sol_pct DOUBLE: duration-weighted mean of the kernel's memory SOL, %
-- headroom_pct DOUBLE: SOL headroom of a kernel: reduction of share_pct if the same work ran at 100 % SOL, %
--   of the reference time (share_of)
-- waiting_pct DOUBLE: share of the collective time that the GPU spends waiting for other ranks, %; only for
--   ranks_wait and start_skew
-- start_pct DOUBLE: share of the waiting time that the GPU spends in the first collective, %; only for
--   ranks_wait and start_skew
-- last_rank BIGINT: rank that most often arrives last at collectives; NULL if this GPU's own rank is last
-- last_pct DOUBLE: share of the collectives in which last_rank arrives last, %
-- last_cause VARCHAR: category in which last_rank spends the most extra time compared with this GPU's rank;
--   NULL if unknown
-- last_excess_ns DOUBLE: extra time that last_rank spends in the category last_cause, ns; per step if there
--   are steps
-- for_rank BIGINT: rank to which the technique applies; NULL if it applies to this GPU
-- readbacks BIGINT: number of small copies to the host; only for readback
-- readbacks_per_step DOUBLE: number of small copies to the host per step; NULL without steps
-- readback_bytes BIGINT: size of the largest small copy to the host, bytes
-- slow_pct DOUBLE: percentage of the window during which the host repeatedly prepares the same launch, as in
--   timeline_findings
-- idle_line VARCHAR: description of the lines of the program in which most of the category's idle time
--   occurs; NULL if no stacks were sampled
-- idle_in VARCHAR: description of where most of the category's idle time occurs
-- causes VARCHAR: description of the causes of a long start-up, of an operator's longest kernels, or of what
--   is compiled again and again
-- largest_gap VARCHAR: description of the category's longest idle interval
-- ncu_verdict VARCHAR: NVIDIA's verdict on the kernel
-- explanation VARCHAR: why the kernel's class is uncertain or differs from NVIDIA's verdict
-- notable VARCHAR: what the counters of a kernel show besides SOL, as in kernel_bottleneck
-- bound_pct DOUBLE: upper bound on the gain, % of the same time as share_pct: for a timeline, the largest
--   bound among its techniques; for a kernel or for waiting ranks, the bound of the first technique; NULL if
--   no bound can be derived, and for startup, because the cost of start-up does not grow with the length of
--   the run
-- most_pct DOUBLE: value by which findings are sorted, %: bound_pct if known, else share_pct; the share of a
--   step's kernels is capped at the time that faster kernels can save, and an operator's share also at the
--   time that the GPU spends waiting for input
-- floor VARCHAR: part of the work or time that the bound assumes to be unchanged, as in kernel_floors or
--   timeline_findings
-- nvidia_pct DOUBLE: NVIDIA's estimate of the time that the technique saves, % of the kernel's time; NULL
--   without an estimate
-- confidence VARCHAR: high, medium or low
-- technique VARCHAR: key of the recommended technique in the knowledge base: the technique to which bound_pct
--   applies, else the first technique to try; NULL without a technique
-- reports VARCHAR[]: reports on which the finding is based
CREATE VIEW findings AS
WITH found AS (
    FROM _timeline_claims
    UNION ALL BY NAME
    SELECT
        'kernel' AS subject,
        CASE WHEN setup IS NOT NULL THEN 'setup' WHEN near_limit THEN 'near_limit' ELSE bound END AS claim,
        rank AS place,
        gain_pct AS bound_pct,
        n.short_name,
        k.* EXCLUDE (rank, setup, near_limit, gain_pct, kernel_demangled, sol_pct)
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
judged AS (
    SELECT
        *,
        subject = 'kernel' AND list_has_all(
            coalesce((SELECT list(report_id) FROM _uncovered_profiles), []), reports
        ) AS beside
    FROM found
),
ranked AS (
    SELECT
        *,
        coalesce(bound_pct, weight_pct, share_pct) AS most_pct,
        -- A step that reads values back several times cannot be a CUDA graph before these copies are gone.
        CASE
            WHEN precedes_graphs(bound, readbacks_per_step)
                THEN greatest(most_pct, max(if(bound = 'launch_overhead', most_pct, NULL))
                    OVER (PARTITION BY subject, reports, device))
            -- Launching faster also hides long work of the host, which is a finding of its own.
            WHEN bound = 'launch_overhead'
                THEN beside_host(most_pct, share_pct, max(if(bound = 'host', share_pct, NULL))
                    OVER (PARTITION BY subject, reports, device))
            ELSE most_pct
        END AS order_pct,
        max(bound_pct) FILTER (
            subject = 'kernel' AND claim NOT IN ('near_limit', 'setup') AND NOT beside
        ) OVER () AS kernels_pct
    FROM judged
)
SELECT
    row_number() OVER (
        ORDER BY
            CASE
                WHEN NOT recurs THEN 2
                WHEN subject = 'timeline'
                    AND order_pct < least(threshold('finding.minor_pct'), kernels_pct)
                    THEN 1.2
                WHEN subject = 'timeline' THEN 0
                WHEN beside THEN 4
                WHEN most_pct < threshold('finding.small_pct') THEN 3
                WHEN claim = 'near_limit' THEN 1.5
                WHEN claim = 'setup' THEN 1.7
                ELSE 1
            END,
            -- A technique that makes results less exact has to save more than others.
            CASE
                WHEN subject = 'timeline'
                    THEN order_pct * if(precision, threshold('finding.inexact_weight'), 1)
            END DESC,
            recurs IS NOT NULL,
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
    slow_pct, idle_line, idle_in, causes, largest_gap, ncu_verdict, explanation, notable,
    bound_pct, most_pct, floor, nvidia_pct, confidence, technique, reports
FROM ranked
ORDER BY rank;
