-- The findings of a report: contributors to the time of each GPU first, then the classes of
-- kernels, each with its numbers and an upper bound on the saving.  For kernels see kernel_classes,
-- whose shares are of all reports in the query.
--
-- rank: position in the list, from 1
-- subject: timeline or kernel
-- claim: near_limit, ranks_wait, or the bound that it is about
-- bound: category of timeline_bottleneck, or bound of kernel_bottleneck
-- subclass: limiter, for a kernel
-- cause: cause, for a kernel
-- label: configuration or file of a timeline
-- device: physical GPU number, for a timeline
-- kernel_name: function name, for a kernel
-- short_name: its short name, as in kernel_names
-- grid: its blocks as x,y,z
-- block: its threads as x,y,z
-- nvtx_path: its enclosing NVTX ranges
-- share_pct: share of the GPU's window, or of all profiled time, %
-- time_ns: total duration of the launches, ns; for a kernel
-- launches: number of launches of the kernel
-- compute_sol_pct: compute SOL, mean weighted by duration, %
-- memory_sol_pct: memory SOL, mean weighted by duration, %
-- waiting_pct: share of the GPU's time spent waiting for other ranks, %; for ranks_wait
-- last_rank: rank that most often arrives last; NULL if it is the GPU's own
-- last_pct: share of the collectives in which that rank arrives last, %
-- largest_gap: longest idle interval of the category in words
-- ncu_verdict: NVIDIA's verdict on the kernel
-- explanation: why its class is uncertain or differs from NVIDIA's
-- bound_pct: share of the GPU's window, or of all profiled time, that could be saved at most, %
-- confidence: high, medium or low
-- technique: key in the knowledge base of what to try first; NULL if there is none
-- reports: its reports
CREATE VIEW findings AS
WITH contributors AS (
    SELECT
        report_id,
        device,
        bound,
        any_value(share_pct ORDER BY rank) AS share_pct,
        any_value(confidence ORDER BY rank) AS confidence,
        any_value(largest_gap ORDER BY rank) AS largest_gap,
        arg_min(technique, rank) AS technique
    FROM timeline_findings
    GROUP BY report_id, device, bound
),
stragglers AS (
    SELECT job, arg_max(rank, (last, -rank)) AS last_rank, max(last_pct) AS last_pct
    FROM rank_skew
    GROUP BY job
),
waits AS (
    SELECT
        k.report_id,
        k.device,
        'communication' AS bound,
        any_value(k.waiting_pct ORDER BY k.job, k.rank) AS waiting_pct,
        any_value(k.rank ORDER BY k.job, k.rank) AS own_rank,
        any_value(s.last_rank ORDER BY k.job, k.rank) AS last_rank,
        any_value(s.last_pct ORDER BY k.job, k.rank) AS last_pct
    FROM rank_skew AS k
    JOIN stragglers AS s USING (job)
    WHERE k.waiting_pct >= threshold('timeline.contributor_pct')
    GROUP BY k.report_id, k.device
),
found AS (
    SELECT
        'timeline' AS subject,
        CASE WHEN w.waiting_pct IS NOT NULL THEN 'ranks_wait' ELSE c.bound END AS claim,
        row_number() OVER (ORDER BY c.share_pct DESC, c.report_id, c.device, c.bound) AS place,
        c.bound,
        l.label,
        c.device,
        c.share_pct,
        w.waiting_pct,
        CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_rank END AS last_rank,
        CASE WHEN w.last_rank != w.own_rank AND w.last_pct > 0 THEN w.last_pct END AS last_pct,
        c.largest_gap,
        c.share_pct AS bound_pct,
        c.confidence,
        c.technique,
        [c.report_id] AS reports
    FROM contributors AS c
    JOIN _labels AS l USING (report_id)
    LEFT JOIN waits AS w ON w.report_id = c.report_id AND w.device = c.device AND w.bound = c.bound
    UNION ALL BY NAME
    SELECT
        'kernel' AS subject,
        CASE WHEN near_limit THEN 'near_limit' ELSE bound END AS claim,
        rank AS place,
        headroom_pct AS bound_pct,
        n.short_name,
        k.* EXCLUDE (rank, near_limit, headroom_pct, kernel_demangled, sol_pct)
    FROM kernel_classes AS k
    LEFT JOIN (SELECT demangled, min(short_name) AS short_name FROM _known_kernels GROUP BY ALL) AS n
        ON n.demangled = coalesce(k.kernel_demangled, k.kernel_name)
    WHERE bound != 'unknown'
)
SELECT
    row_number() OVER (ORDER BY subject DESC, place) AS rank,
    subject,
    claim,
    bound,
    subclass,
    cause,
    label,
    device,
    kernel_name,
    coalesce(short_name, kernel_name) AS short_name,
    grid,
    block,
    nvtx_path,
    share_pct,
    time_ns,
    launches,
    compute_sol_pct,
    memory_sol_pct,
    waiting_pct,
    last_rank,
    last_pct,
    largest_gap,
    ncu_verdict,
    explanation,
    bound_pct,
    confidence,
    technique,
    reports
FROM found
ORDER BY rank;
