-- The part of each GPU's timeline that is analyzed for verdicts, budgets, idle gaps and kernel summaries:
-- the steady steps, unless --window selects the whole capture, the start-up or one step.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process whose steps are counted; NULL if there are no steps
-- kind VARCHAR: kind of window: steady, whole, startup or step
-- start_ns BIGINT: start of the first step in the window, or start of the window if there are no steps, ns
-- end_ns BIGINT: end of the last step in the window, or end of the window if there are no steps, ns
-- time_ns BIGINT: total analyzed time, ns; less than end_ns - start_ns if steps in between are excluded
-- steps BIGINT: number of analyzed steps; NULL if there are no steps
-- step_ns DOUBLE: median step duration, ns; NULL if there are no steps
-- p95_ns DOUBLE: 95th percentile (p95) of the step duration, ns; NULL if there are no steps
-- averaged BIGINT: number of loop iterations combined into one step, usually 1; if the number is larger,
--   step_ns and p95_ns refer to the mean duration of these iterations
-- source VARCHAR: source of the steps: step range, NVTX, ProfilerStep or period; NULL if there are no steps
-- startup_ns BIGINT: start-up and warm-up time before the first analyzed step, excluding other loops, ns;
--   NULL if there are no steps
-- left_out BIGINT: number of steps after warm-up that are excluded because they differ from the others
-- why VARCHAR: why this window was chosen; NULL if the user selected it
CREATE VIEW analysis_windows AS
WITH phased AS (
    SELECT
        w.*, w.end_ns - w.start_ns AS dur_ns, dur_ns / w.repeats AS mean_ns, p.phase, p.why,
        a.window_id IS NOT NULL AS analysed,
        -- Without a repeating step, loops are at most trials of an autotuner, or repeats of one pass.
        analysed AND (p.phase != 'whole' OR window_choice() NOT IN ('steady', 'whole', 'startup')) AS counts
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
        coalesce(sum(repeats) FILTER (counts), 0)::BIGINT AS steps,
        median(mean_ns) FILTER (counts AND step IS NOT NULL) AS step_ns,
        quantile_cont(mean_ns, 0.95) FILTER (counts AND step IS NOT NULL) AS p95_ns,
        max(repeats) FILTER (counts) AS averaged,
        any_value(source) FILTER (phase != 'whole' OR counts) AS source,
        -- Other loops before the steps do not count as start-up.
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
        CASE WHEN b.repetitions IS NOT NULL THEN concat('none, because a benchmark times kernels ',
            printf('%,d', b.repetitions), ' times and flushes the L2 cache before each repetition; ',
            printf('flushing takes %.0f %% of kernel time', b.flush_pct))
        END,
        s.why,
        CASE WHEN s.all_of_it AND window_choice() = 'steady' AND NOT s.has_steady
            THEN 'no steady steps after the warm-up; the whole capture is analyzed'
        END,
        CASE WHEN s.all_of_it AND window_choice() NOT IN ('steady', 'whole')
            THEN concat('this GPU has no window ', window_choice(), '; the whole capture is analyzed')
        END
    ) AS why
FROM summed AS s
JOIN _gpus AS g USING (track)
LEFT JOIN benchmark_loops AS b ON b.report_id = g.report_id AND b.device = g.device AND s.source IS NULL
ORDER BY g.report_id, g.device;
