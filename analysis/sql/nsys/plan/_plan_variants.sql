-- Variants that ncu distinguishes among the kernels that may be profiled: names, sizes and shared memory.
-- `first_place` and `first_end_ns` refer to the launch that ncu profiles; `gain_ns` is the time that it
-- represents. ncu selects by name and profiles one launch of each size, so names are chosen: first those that
-- represent the most time per launch, up to the requested coverage. `fits` is false if this would be too many
-- launches.
-- @materialize
CREATE VIEW _plan_variants AS
WITH taken AS (
    SELECT
        l.report_id,
        l.config,
        min(l.place) FILTER (l.place >= s.start_place) AS first_place,
        min(l.end_ns) FILTER (l.place >= s.start_place) AS first_end_ns,
        coalesce(arg_min(l.gain_ns, l.place) FILTER (l.place >= s.start_place AND l.inside), 0) AS gain_ns
    FROM _plan_launches AS l
    JOIN _plan_starts AS s USING (report_id)
    GROUP BY l.report_id, l.config
),
variants AS (
    SELECT
        t.*,
        any_value(coalesce(w.mangled, w.name)) AS filter_name,
        sum(w.launches)::BIGINT AS launches,
        sum(w.time_ns)::BIGINT AS time_ns
    FROM taken AS t
    JOIN _profiled_process AS p USING (report_id)
    JOIN _window_kernels AS w
        ON w.report_id = t.report_id
            AND w.config = t.config
            AND w.pid IS NOT DISTINCT FROM p.pid
            AND w.cuda_device IS NOT DISTINCT FROM p.cuda_device
    GROUP BY ALL
),
names AS (
    SELECT
        report_id,
        filter_name,
        sum(gain_ns)::BIGINT AS gain_ns,
        count(first_place) FILTER (launches > 0) AS profiles,
        sum(gain_ns) / nullif(count(first_place) FILTER (launches > 0), 0) AS worth_ns
    FROM variants
    GROUP BY report_id, filter_name
),
ordered AS (
    SELECT
        report_id,
        filter_name,
        (sum(gain_ns) OVER earlier)::BIGINT - gain_ns AS before_ns,
        (sum(profiles) OVER earlier)::BIGINT AS profiles
    FROM names
    WHERE gain_ns > 0
    WINDOW earlier AS (
        PARTITION BY report_id
        ORDER BY worth_ns DESC, gain_ns DESC, filter_name ROWS UNBOUNDED PRECEDING
    )
),
totals AS (
    SELECT report_id, sum(time_ns)::BIGINT AS all_ns
    FROM variants
    GROUP BY report_id
)
SELECT
    v.*,
    t.all_ns,
    coalesce(100.0 * o.before_ns < threshold('plan.coverage_pct') * t.all_ns, false) AS needed,
    coalesce(o.profiles <= threshold('plan.max_kernels'), false) AS fits,
    needed AND fits AS wanted
FROM variants AS v
JOIN totals AS t USING (report_id)
LEFT JOIN ordered AS o USING (report_id, filter_name);
