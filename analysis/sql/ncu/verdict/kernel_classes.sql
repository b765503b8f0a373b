-- Launches of one kernel configuration and class together, the largest headroom first: what a report
-- says of kernels.  Shares are of the profiled time of all reports that the query reads, of launches
-- whose duration and SOL are known; the headroom bounds a saving, no kernel runs at 100 %.
--
-- rank: 1 has the largest headroom
-- kernel_name: function name
-- kernel_demangled: full demangled name
-- grid: blocks as x,y,z
-- block: threads as x,y,z
-- nvtx_path: enclosing NVTX ranges
-- bound: class, as in kernel_bottleneck
-- subclass: where
-- cause: why
-- confidence: that of the class
-- launches: launches of it
-- time_ns: sum of their durations, ns
-- share_pct: share of all profiled time, %
-- compute_sol_pct: compute SOL, mean weighted by duration, %
-- memory_sol_pct: memory SOL, likewise, %
-- sol_pct: the larger of the two, %
-- near_limit: whether that leaves little to gain (80 % or more)
-- headroom_pct: share of all profiled time that could be saved at most, %
-- ncu_verdict: NVIDIA's verdict on the first of them; NULL where ncu gave none
-- explanation: why the class is unsure or another than NVIDIA's, of the first that has one
-- technique: key of the first technique of kernel_findings; NULL where there is none
-- reports: reports that they are in
CREATE VIEW kernel_classes AS
WITH launches AS (
    SELECT
        s.*,
        b.bound,
        b.subclass,
        b.cause,
        b.confidence,
        b.ncu_verdict,
        b.explanation,
        f.technique
    FROM kernel_sol AS s
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
    LEFT JOIN kernel_findings AS f
        ON f.report_id = s.report_id AND f.launch_id = s.launch_id AND f.rank = 1
    WHERE s.duration_ns IS NOT NULL AND s.max_sol_pct IS NOT NULL
),
profiled AS (
    SELECT nullif(sum(duration_ns ORDER BY report_id, launch_id), 0) AS time_ns
    FROM launches
),
classes AS (
    SELECT
        kernel_name,
        kernel_demangled,
        grid,
        block,
        nvtx_path,
        bound,
        subclass,
        cause,
        confidence,
        count(*) AS launches,
        sum(duration_ns ORDER BY report_id, launch_id) AS time_ns,
        sum(compute_sol_pct * duration_ns ORDER BY report_id, launch_id) AS compute_ns_pct,
        sum(memory_sol_pct * duration_ns ORDER BY report_id, launch_id) AS memory_ns_pct,
        sum(headroom(max_sol_pct) * duration_ns ORDER BY report_id, launch_id) AS headroom_ns_pct,
        any_value(ncu_verdict ORDER BY report_id, launch_id) AS ncu_verdict,
        any_value(explanation ORDER BY report_id, launch_id) AS explanation,
        any_value(technique ORDER BY report_id, launch_id) AS technique,
        list(DISTINCT report_id ORDER BY report_id) AS reports
    FROM launches
    GROUP BY
        kernel_name, kernel_demangled, grid, block, nvtx_path, bound, subclass, cause, confidence
),
shares AS (
    SELECT
        c.*,
        100 * c.time_ns / p.time_ns AS share_pct,
        c.compute_ns_pct / nullif(c.time_ns, 0) AS compute_sol_pct,
        c.memory_ns_pct / nullif(c.time_ns, 0) AS memory_sol_pct,
        c.headroom_ns_pct / p.time_ns AS headroom_pct,
        greatest(compute_sol_pct, memory_sol_pct) AS sol_pct
    FROM classes AS c
    CROSS JOIN profiled AS p
)
SELECT
    row_number() OVER (
        ORDER BY
            headroom_pct DESC, time_ns DESC, kernel_name, grid, block, nvtx_path,
            kernel_demangled, bound, subclass, cause, confidence
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
    launches,
    time_ns,
    share_pct,
    compute_sol_pct,
    memory_sol_pct,
    sol_pct,
    sol_pct >= threshold('finding.secondary_sol_pct') AS near_limit,
    headroom_pct,
    ncu_verdict,
    explanation,
    technique,
    reports
FROM shares
ORDER BY rank;
