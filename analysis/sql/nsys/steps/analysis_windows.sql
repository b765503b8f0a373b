-- The part of each GPU's time that verdicts, budgets, idle gaps and kernel summaries are about: the
-- steady steps, unless --window chooses the whole capture, the start or one step.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process whose steps are counted; NULL without steps
-- kind VARCHAR: steady, whole, startup or step
-- start_ns BIGINT: start of the first window, ns
-- end_ns BIGINT: end of the last, ns
-- time_ns BIGINT: duration of the windows together, ns; less than end_ns - start_ns where some between are
--   left out
-- steps BIGINT: number of steps in it; NULL without steps
-- step_ns DOUBLE: median step, ns; NULL without steps
-- p95_ns DOUBLE: 95th percentile (p95) of the steps, ns; NULL without steps
-- averaged BIGINT: repeats of the loop that `steps` lists together, whose mean these two are of; 1 for most
-- source VARCHAR: where steps come from: step range, NVTX, ProfilerStep or period; NULL without steps
-- startup_ns BIGINT: time before it that is start-up or warm-up, without other loops, ns; NULL without steps
-- left_out BIGINT: steps of the loop behind its warm-up that are not alike and are left out
-- why VARCHAR: why that part; NULL if it is what was chosen
CREATE VIEW analysis_windows AS
WITH phased AS (
    SELECT
        w.*, w.end_ns - w.start_ns AS dur_ns, dur_ns / w.repeats AS mean_ns, p.phase, p.why,
        a.window_id IS NOT NULL AS analysed
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
    LEFT JOIN _analysed AS a USING (track, window_id)
),
summed AS (
    SELECT
        track,
        any_value(pid) FILTER (analysed) AS process_id,
        min(start_ns) FILTER (analysed) AS start_ns,
        max(end_ns) FILTER (analysed) AS end_ns,
        sum(dur_ns) FILTER (analysed)::BIGINT AS time_ns,
        coalesce(sum(repeats) FILTER (analysed), 0)::BIGINT AS steps,
        median(mean_ns) FILTER (analysed AND step IS NOT NULL) AS step_ns,
        quantile_cont(mean_ns, 0.95) FILTER (analysed AND step IS NOT NULL) AS p95_ns,
        max(repeats) FILTER (analysed) AS averaged,
        any_value(source) AS source,
        -- Other loops before the steps are no start-up.
        sum(dur_ns) FILTER (
            phase IN ('start-up', 'warm-up') AND (main OR step IS NULL)
        )::BIGINT AS startup_ns,
        coalesce(sum(repeats) FILTER (main AND phase = 'other'), 0)::BIGINT AS left_out,
        bool_and(analysed) AS all_of_it,
        bool_or(phase = 'steady') AS has_steady,
        any_value(why) FILTER (phase = 'whole') AS why
    FROM phased
    GROUP BY track
)
SELECT
    g.report_id,
    g.device,
    s.process_id,
    CASE
        WHEN s.all_of_it AND NOT (window_choice() = 'steady' AND s.has_steady) THEN 'whole'
        WHEN window_choice() IN ('steady', 'whole', 'startup') THEN window_choice()
        ELSE 'step'
    END AS kind,
    s.start_ns,
    s.end_ns,
    s.time_ns,
    nullif(s.steps, 0) AS steps,
    s.step_ns,
    s.p95_ns,
    s.averaged,
    s.source,
    if(s.source IS NULL, NULL, coalesce(s.startup_ns, 0)) AS startup_ns,
    s.left_out,
    coalesce(
        CASE WHEN b.repetitions IS NOT NULL THEN concat('none: a benchmark times kernels ',
            printf('%,d', b.repetitions), ' times, each after the L2 cache was overwritten; ',
            printf('that takes %.0f %% of the GPU''s time in kernels', b.flush_pct))
        END,
        s.why,
        CASE WHEN s.all_of_it AND window_choice() = 'steady' AND NOT s.has_steady
            THEN 'no steady steps behind the warm-up; the whole capture is analysed'
        END,
        CASE WHEN s.all_of_it AND window_choice() NOT IN ('steady', 'whole')
            THEN concat('no window ', window_choice(), ' on this GPU; the whole capture is analysed')
        END
    ) AS why
FROM summed AS s
JOIN _gpus AS g USING (track)
LEFT JOIN benchmark_loops AS b ON b.report_id = g.report_id AND b.device = g.device AND s.source IS NULL
ORDER BY g.report_id, g.device;
