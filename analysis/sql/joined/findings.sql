-- What a report finds: contributors to the time of each GPU first, then the classes of kernels, each
-- with the numbers behind it and a bound on what it could save.  Kernels: see kernel_classes, whose
-- shares are of all reports that the query reads.
--
-- rank: place in the list, from 1
-- subject: timeline or kernel
-- claim: near_limit, or ranks_wait, or the bound that it is about
-- bound: category of timeline_bottleneck, or class of kernel_bottleneck
-- subclass: where, for a kernel
-- cause: why, for a kernel
-- label: configuration or file of a timeline
-- device: GPU number of the machine, for a timeline
-- kernel_name: function name, for a kernel
-- grid: its blocks as x,y,z
-- block: its threads as x,y,z
-- nvtx_path: its enclosing NVTX ranges
-- share_pct: share of the GPU's window, or of all profiled time, %
-- time_ns: sum of the launches' durations, ns; for a kernel
-- launches: launches of the kernel
-- compute_sol_pct: compute SOL, mean weighted by duration, %
-- memory_sol_pct: memory SOL, likewise, %
-- waiting_pct: of the GPU's time in which it waits for other ranks, %; for ranks_wait
-- last_rank: rank that comes last most often; NULL where it is the GPU's own
-- last_pct: of the collectives that this rank comes last to, %
-- largest_gap: longest idle interval of the category in words
-- ncu_verdict: NVIDIA's verdict on the kernel
-- explanation: why its class is unsure or another than NVIDIA's
-- bound_pct: share of the GPU's window, or of all profiled time, that could be saved at most, %
-- confidence: high, medium or low
-- technique: key in the knowledge base of what to try first; NULL where there is nothing
-- reports: reports that it is about
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
        * EXCLUDE (rank, near_limit, headroom_pct, kernel_demangled, sol_pct)
    FROM kernel_classes
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
