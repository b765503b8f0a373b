-- Totals of profile_plan: how much time the chosen kernels cover, and how many launches ncu must skip and
-- profile. ncu profiles one launch of each configuration (grid, block, shared memory) of the chosen
-- kernels.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- cc VARCHAR: compute capability of the GPU; NULL if the report does not contain it
-- cuda_device BIGINT: CUDA device index of the GPU within the process
-- process_id BIGINT: process id
-- processes BIGINT: number of processes (ranks) that launched kernels; only one of them is profiled
-- window_kind VARCHAR: steady, or whole if no repeating step was found
-- steps BIGINT: number of steps in the window; NULL if window_kind is whole
-- launches_before BIGINT: number of kernels that the process launches before the first kernel that may be
--   profiled: kernels before the window, and kernels early in the window's first step that are worse
--   candidates than later kernels
-- configurations BIGINT: number of distinct configurations of non-communication kernels within the window
-- chosen BIGINT: number of configurations to profile
-- coverage_pct DOUBLE: percentage of the window's non-communication kernel time that the profiles represent
-- communication_pct DOUBLE: communication as a percentage of the process's kernel time
-- expected_launches BIGINT: number of launches that ncu profiles if ncu stops after the last chosen launch
-- most_launches BIGINT: number of launches that ncu profiles if the program runs to completion
-- span_ns BIGINT: time on the timeline from the first launch that may be profiled to the end of the last
--   chosen launch, ns; NULL if no launch was chosen
-- refused VARCHAR: why profiling is not possible; NULL if it is possible
CREATE VIEW profile_plan_totals AS
WITH processes AS (
    SELECT p.*, w.kind AS window_kind, w.steps, w.start_ns AS window_start_ns
    FROM _profiled_process AS p
    JOIN analysis_windows AS w
        ON w.report_id = p.report_id AND w.device IS NOT DISTINCT FROM p.device
),
-- Launches are skipped per process, for all of its GPUs.
before AS (
    SELECT p.report_id, count(*) AS launches
    FROM nsys_kernels AS k
    JOIN processes AS p ON p.report_id = k.report_id AND p.pid IS NOT DISTINCT FROM k.pid
    WHERE k.start_ns < p.window_start_ns
    GROUP BY p.report_id
),
planned AS (
    SELECT
        report_id,
        count(*) FILTER (share_pct IS NOT NULL) AS configurations,
        count(*) FILTER (chosen) AS chosen
    FROM profile_plan
    GROUP BY report_id
),
-- Last requested launch; later launches with the same names are not waited for.
lasts AS (
    SELECT
        report_id,
        max(first_place) AS last_place,
        max(first_end_ns) AS last_end_ns,
        100.0 * sum(gain_ns) / nullif(any_value(all_ns), 0) AS coverage_pct
    FROM _plan_variants
    WHERE wanted AND gain_ns > 0
    GROUP BY report_id
),
starts AS (
    SELECT s.report_id, s.start_place, min(l.start_ns) FILTER (l.place >= s.start_place) AS start_ns
    FROM _plan_starts AS s
    JOIN _plan_launches AS l USING (report_id)
    GROUP BY s.report_id, s.start_place
),
seen AS (
    SELECT
        v.report_id,
        count(v.first_place) FILTER (v.first_place <= l.last_place) AS expected,
        count(v.first_place) AS most
    FROM _plan_variants AS v
    JOIN lasts AS l USING (report_id)
    WHERE v.wanted
    GROUP BY v.report_id
)
SELECT
    p.report_id,
    p.device,
    g.cc,
    p.cuda_device,
    p.pid AS process_id,
    p.processes,
    p.window_kind,
    p.steps,
    coalesce(b.launches, 0) + coalesce(s.start_place, 1) - 1 AS launches_before,
    coalesce(n.configurations, 0) AS configurations,
    coalesce(n.chosen, 0) AS chosen,
    coalesce(l.coverage_pct, 0) AS coverage_pct,
    100.0 * p.communication_ns / nullif(p.compute_ns + p.communication_ns, 0) AS communication_pct,
    coalesce(c.expected, 0) AS expected_launches,
    coalesce(c.most, 0) AS most_launches,
    l.last_end_ns - s.start_ns AS span_ns,
    p.refused
FROM processes AS p
LEFT JOIN before AS b USING (report_id)
LEFT JOIN planned AS n USING (report_id)
LEFT JOIN lasts AS l USING (report_id)
LEFT JOIN starts AS s USING (report_id)
LEFT JOIN seen AS c USING (report_id)
LEFT JOIN nsys_gpus AS g ON g.report_id = p.report_id AND g.gpu = p.device
ORDER BY p.report_id;
