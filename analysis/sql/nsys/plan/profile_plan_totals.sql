-- What the kernels of profile_plan amount to: the time that they cover, and what ncu must skip and
-- profile for them.  ncu takes one launch of each configuration (grid, block, shared memory) of the
-- chosen names.
--
-- report_id: report
-- device: physical GPU number
-- cuda_device: number of that GPU in its process
-- process_id: process
-- processes: number of processes (ranks) with kernels; one of them is profiled
-- window_kind: steady, or whole where no repeating step was found
-- steps: number of steps in the window; NULL for whole
-- launches_before: kernels that the process launches before the window
-- configurations: kernel configurations in the window, without communication
-- chosen: how many of them are to be profiled
-- coverage_pct: share of the window's kernel time without communication that ncu profiles if the
--   program runs to its end, %
-- communication_pct: share of communication in the process's kernel time, %
-- expected_launches: launches that ncu profiles until it has seen all that are chosen
-- most_launches: launches that it profiles if the program runs to its end
-- refused: why nothing may be profiled; NULL if it may
CREATE VIEW profile_plan_totals AS
WITH own AS (
    SELECT k.*, p.compute_ns, p.communication_ns, p.processes, p.refused
    FROM _window_kernels AS k
    JOIN _profiled_process AS p
        ON p.report_id = k.report_id
            AND p.pid IS NOT DISTINCT FROM k.pid
            AND p.cuda_device IS NOT DISTINCT FROM k.cuda_device
),
-- Launches are skipped by process, whatever GPU they are for.
skipped AS (
    SELECT k.report_id, sum(k.before)::BIGINT AS launches_before
    FROM _window_kernels AS k
    JOIN _profiled_process AS p ON p.report_id = k.report_id AND p.pid IS NOT DISTINCT FROM k.pid
    GROUP BY k.report_id
),
planned AS (
    SELECT
        report_id,
        count(*) FILTER (share_pct IS NOT NULL) AS configurations,
        count(*) FILTER (chosen) AS chosen
    FROM profile_plan
    GROUP BY report_id
),
covered AS (
    SELECT
        report_id,
        100.0 * coalesce(sum(time_ns) FILTER (filter_name IN (
            SELECT n.filter_name FROM _plan_variants AS n WHERE n.wanted AND n.report_id = v.report_id
        )), 0) / nullif(any_value(all_ns), 0) AS coverage_pct
    FROM _plan_variants AS v
    WHERE NOT communication
    GROUP BY report_id
),
seen AS (
    SELECT o.report_id, o.first_ns, coalesce(v.wanted, false) AS wanted
    FROM own AS o
    JOIN (SELECT DISTINCT report_id, filter_name FROM _plan_variants WHERE wanted) AS n
        ON n.report_id = o.report_id AND n.filter_name = o.filter_name
    LEFT JOIN _plan_variants AS v
        ON v.report_id = o.report_id
            AND v.filter_name = o.filter_name
            AND v.demangled = o.demangled
            AND v.grid = o.grid
            AND v.block = o.block
            AND v.smem IS NOT DISTINCT FROM o.smem
    WHERE o.first_ns IS NOT NULL
),
counted AS (
    SELECT s.report_id, count(*) AS most, count(*) FILTER (s.first_ns <= l.last_ns) AS expected
    FROM seen AS s
    JOIN (
        SELECT report_id, max(first_ns) FILTER (wanted) AS last_ns FROM seen GROUP BY report_id
    ) AS l USING (report_id)
    GROUP BY s.report_id
),
windows AS (
    SELECT
        report_id,
        device,
        pid,
        cuda_device,
        processes,
        compute_ns,
        communication_ns,
        refused,
        any_value(window_kind) AS window_kind,
        any_value(steps) AS steps
    FROM own
    GROUP BY ALL
)
SELECT
    w.report_id,
    w.device,
    w.cuda_device,
    w.pid AS process_id,
    w.processes,
    w.window_kind,
    w.steps,
    b.launches_before,
    coalesce(p.configurations, 0) AS configurations,
    coalesce(p.chosen, 0) AS chosen,
    coalesce(v.coverage_pct, 0) AS coverage_pct,
    100.0 * w.communication_ns / nullif(w.compute_ns + w.communication_ns, 0) AS communication_pct,
    coalesce(c.expected, 0) AS expected_launches,
    coalesce(c.most, 0) AS most_launches,
    w.refused
FROM windows AS w
JOIN skipped AS b USING (report_id)
LEFT JOIN planned AS p USING (report_id)
LEFT JOIN covered AS v USING (report_id)
LEFT JOIN counted AS c USING (report_id)
ORDER BY w.report_id;
