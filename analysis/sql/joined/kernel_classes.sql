-- Classified kernels: one row for all launches with the same kernel configuration and class, largest upper
-- bound on the gain first. Launches whose duration or SOL is unknown are excluded. Shares refer to the step
-- if every profiled report has a timeline, else to the total profiled time of the reports in the query.
--
-- rank BIGINT: position in the list, from 1 for the largest bound; a class without a bound is ranked by
--   share_pct
-- kernel_name VARCHAR: function name
-- kernel_demangled VARCHAR: full demangled name
-- grid VARCHAR: grid dimensions in blocks, as x,y,z
-- block VARCHAR: block dimensions in threads, as x,y,z
-- nvtx_path VARCHAR: enclosing NVTX ranges
-- bound VARCHAR: bound, as in kernel_bottleneck
-- subclass VARCHAR: limiter, as in kernel_bottleneck
-- cause VARCHAR: cause, as in kernel_bottleneck
-- confidence VARCHAR: confidence of the class: high, medium or low
-- setup VARCHAR: what the kernel prepares or checks, in a report without a timeline: inputs, states (of
--   random-number generators), check (a reference or comparison) or flush (of the L2 cache); NULL for other
--   kernels
-- launches BIGINT: number of launches
-- time_ns DOUBLE: total duration of the launches, ns
-- share_of VARCHAR: reference time (100 %) for share_pct: step, steps (the steps of all timelines), timeline
--   (a window without steps) or profile (all profiled time)
-- share_pct DOUBLE: share of the reference time (share_of), %
-- compute_sol_pct DOUBLE: duration-weighted mean compute SOL, %
-- memory_sol_pct DOUBLE: duration-weighted mean memory SOL, %
-- sol_pct DOUBLE: larger of compute and memory SOL, %
-- near_limit BOOLEAN: whether the kernel is near its limit: its SOL is at least 80 %, no cause of
--   inefficiency was found, and no technique except lower precision could save half of the time
-- headroom_pct DOUBLE: SOL headroom: reduction of share_pct if the same work ran at 100 % SOL, % of the
--   reference time (share_of)
-- gain_pct DOUBLE: upper bound on the gain of the first technique to try, % of the same time as share_pct; in
--   a step, capped at the time that the host spends waiting for the GPU; NULL without a bound
-- weight_pct DOUBLE: share_pct with the same cap as gain_pct, %; used to rank classes without a bound, as in
--   findings
-- floor VARCHAR: what limits the gain for the longest launch: the unchanged part of its work, as in
--   kernel_floors, or host (the time that the host needs to issue the step)
-- nvidia_pct DOUBLE: NVIDIA's estimate of the time that the technique saves in the longest launch, % of that
--   launch's time
-- ncu_verdict VARCHAR: NVIDIA's verdict on the first launch; NULL if ncu did not record a verdict
-- explanation VARCHAR: why the class is uncertain or differs from NVIDIA's verdict, from the first launch
--   with an explanation
-- notable VARCHAR: what the counters of the longest launch show besides SOL, as in kernel_bottleneck
-- technique VARCHAR: key of the first technique to try, in the knowledge base; NULL if there is none
-- reports VARCHAR[]: reports that contain the launches
CREATE VIEW kernel_classes AS
WITH launches AS (
    SELECT
        s.*,
        u.setup,
        b.bound, b.subclass, b.cause, b.confidence, b.ncu_verdict, b.explanation, b.notable,
        f.technique, f.gain_pct, f.floor, f.nvidia_pct, f.precision,
        h.share_of, h.share, h.most
    FROM kernel_sol AS s
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    JOIN _launch_shares AS h USING (report_id, launch_id)
    LEFT JOIN _setup_launches AS u
        ON u.report_id = s.report_id AND u.launch_id = s.launch_id
    LEFT JOIN kernel_findings AS f
        ON f.report_id = s.report_id AND f.launch_id = s.launch_id AND f.rank = 1
    WHERE s.duration_ns IS NOT NULL AND (s.max_sol_pct IS NOT NULL OR b.bound != 'unknown')
),
classes AS (
    SELECT
        kernel_name, kernel_demangled, grid, block, nvtx_path,
        bound, subclass, cause, confidence, setup,
        count(*) AS launches,
        sum(duration_ns ORDER BY report_id, launch_id) AS time_ns,
        any_value(share_of) AS share_of,
        100 * sum(share ORDER BY report_id, launch_id) AS share_pct,
        time_weighted(compute_sol_pct, duration_ns) AS compute_sol_pct,
        time_weighted(memory_sol_pct, duration_ns) AS memory_sol_pct,
        sum(headroom(max_sol_pct) * share ORDER BY report_id, launch_id) AS headroom_pct,
        CASE
            WHEN count(gain_pct) > 0
                THEN sum(coalesce(gain_pct, 100) * share ORDER BY report_id, launch_id)
        END AS kernel_pct,
        any_value(100 * most) AS most_pct,
        any_value(ncu_verdict ORDER BY report_id, launch_id) AS ncu_verdict,
        any_value(explanation ORDER BY report_id, launch_id) AS explanation,
        of_longest(notable, duration_ns, report_id, launch_id) AS notable,
        of_longest(floor, duration_ns, report_id, launch_id) AS floor,
        of_longest(nvidia_pct, duration_ns, report_id, launch_id) AS nvidia_pct,
        of_longest(technique, duration_ns, report_id, launch_id) AS technique,
        of_longest(precision, duration_ns, report_id, launch_id) AS precision,
        list(DISTINCT report_id ORDER BY report_id) AS reports
    FROM launches
    GROUP BY
        kernel_name, kernel_demangled, grid, block, nvtx_path, bound, subclass, cause, confidence, setup
),
limited AS (
    SELECT
        * EXCLUDE (floor),
        limited_by_host(kernel_pct, most_pct, goes_with_launch(c.floor)) AS limited,
        if(limited, 'host', c.floor) AS floor,
        if(limited, most_pct, kernel_pct) AS gain_pct,
        least(share_pct, most_pct) AS weight_pct
    FROM classes AS c
)
SELECT
    row_number() OVER (
        ORDER BY
            coalesce(kernel_pct, share_pct) DESC,
            confidence_order(confidence), time_ns DESC, kernel_name, grid, block, nvtx_path,
            kernel_demangled, bound, subclass, cause, setup
    ) AS rank,
    kernel_name,
    kernel_demangled,
    grid,
    block,
    nvtx_path,
    bound,
    subclass,
    cause,
    confidence,
    setup,
    launches,
    time_ns,
    share_of,
    share_pct,
    compute_sol_pct,
    memory_sol_pct,
    greatest(compute_sol_pct, memory_sol_pct) AS sol_pct,
    sol_pct >= threshold('finding.secondary_sol_pct')
        AND cause IS NULL
        AND subclass IS DISTINCT FROM 'divergence'
        AND coalesce(precision OR kernel_pct < threshold('finding.much_pct') / 100 * share_pct, true)
            AS near_limit,
    headroom_pct,
    gain_pct,
    weight_pct,
    floor,
    nvidia_pct,
    ncu_verdict,
    explanation,
    notable,
    technique,
    reports
FROM limited
ORDER BY rank;
