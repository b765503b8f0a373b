-- The findings of a report: contributors to the time of each GPU and operators of many kernels first,
-- largest bound or else share first, then the classes of kernels that no operator speaks for; each with its
-- numbers and, where one can be derived, a bound on what its techniques could save. What saves little on a
-- timeline comes behind kernels that can save more, kernels near their limit behind the others; start-up,
-- where it is long (of several GPUs the longest), before kernels that matter little. For kernels see
-- kernel_classes.
--
-- rank BIGINT: position in the list, from 1
-- subject VARCHAR: timeline or kernel
-- claim VARCHAR: near_limit, operator, single_precision, ranks_wait, start_skew (the wait is in the first
--   collective), or the bound that it is about
-- bound VARCHAR: category of timeline_bottleneck, readback, process_starts, operator, single_precision,
--   startup, or bound of kernel_bottleneck
-- subclass VARCHAR: limiter, for a kernel; the operator; the main cause, for startup
-- cause VARCHAR: cause, for a kernel
-- label VARCHAR: configuration or file of a timeline
-- device BIGINT: physical GPU number, for a timeline
-- kernel_name VARCHAR: function name, for a kernel
-- short_name VARCHAR: its short name, as in kernel_names
-- grid VARCHAR: its blocks as x,y,z
-- block VARCHAR: its threads as x,y,z
-- nvtx_path VARCHAR: its enclosing NVTX ranges
-- part VARCHAR: part of the timeline that it is about: steady, whole, startup or step, as in
--   analysis_windows; capture for startup; between for process_starts: from the first steady step to the last
-- share_of VARCHAR: what shares are of: step (the steady steps), steps (those of all timelines, for kernels),
--   timeline (another window of it), timed (the kernels that a benchmark times), between (the time from the
--   first steady step to the last), capture (all from the first CUDA call) or profile (all profiled time)
-- share_pct DOUBLE: share of that, %
-- time_ns DOUBLE: total duration of the launches of a kernel, or of an operator in a step, ns; how long
--   start-up takes, or the idle intervals in which processes start
-- launches BIGINT: number of launches of the kernel, or of the operator in a step; of intervals, for
--   process_starts
-- compute_sol_pct DOUBLE: compute SOL, mean weighted by duration, %
-- memory_sol_pct DOUBLE: memory SOL, mean weighted by duration, %
-- headroom_pct DOUBLE: SOL headroom of a kernel: what its share would shrink by if the same work ran at 100 %
--   SOL, %
-- waiting_pct DOUBLE: share of the time in collectives that is waiting for other ranks, %; for ranks_wait and
--   start_skew
-- start_pct DOUBLE: share of that waiting that is in the first collective, %
-- last_rank BIGINT: rank that most often arrives last; NULL if it is the GPU's own
-- last_pct DOUBLE: share of the collectives in which that rank arrives last, %
-- last_cause VARCHAR: category in which that rank spends the most time more than this one; NULL if unknown
-- last_excess_ns DOUBLE: how much more, ns; in a step where there are steps
-- for_rank BIGINT: rank that the technique is for; NULL if it is for the GPU itself
-- readbacks BIGINT: number of small copies to the host; for readback
-- readbacks_per_step DOUBLE: their number in a step; NULL without steps
-- readback_bytes BIGINT: bytes of the largest
-- slow_pct DOUBLE: share of the window in which the host prepares the same launch time and again, as in
--   timeline_findings, %
-- idle_in VARCHAR: what most of the idle time of the category lies in, in words
-- causes VARCHAR: what start-up consists of, or the kernels of an operator with most time, in words
-- largest_gap VARCHAR: longest idle interval of the category in words
-- ncu_verdict VARCHAR: NVIDIA's verdict on the kernel
-- explanation VARCHAR: why its class is uncertain or differs from NVIDIA's
-- bound_pct DOUBLE: bound on the gain: the largest of its techniques' bounds, for a kernel that of the
--   technique to try first, where ranks wait that of what cures the waiting, on the same whole as its share,
--   %; NULL where none can be derived, and for startup, which a longer run does not repeat
-- most_pct DOUBLE: that bound, or where there is none the share, of a step at most that by which faster
--   kernels can shorten it, and of operators that in which the GPU waits for input, if it does, %: what order
--   goes by
-- floor VARCHAR: what that bound assumes to stay: as in kernel_floors, or in timeline_findings
-- nvidia_pct DOUBLE: NVIDIA's estimate for that technique, % of the kernel's time; NULL if there is none
-- confidence VARCHAR: high, medium or low
-- technique VARCHAR: key in the knowledge base of what has that bound, else of what to try first; NULL if
--   there is none
-- reports VARCHAR[]: its reports
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
        -- Of a step, what hardly is part of it was only profiled.
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
            -- What makes results less exact has to save more than the rest.
            CASE
                WHEN subject = 'timeline'
                    THEN most_pct * if(precision, threshold('finding.inexact_weight'), 1)
            END DESC,
            recurs IS NOT NULL,
            -- A CUDA graph cannot contain what the host does with what it reads back.
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
