-- How steadily each kernel keeps the SMs busy, from PM sampling. SM activity is compared with its plateau:
-- the level that SM activity reaches or exceeds for 10 % of the time during which any SM is active. Activity
-- below half of the plateau is ramp-up at the start, a bubble in the middle or a tail at the end.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- kernel_name VARCHAR: function name
-- samples BIGINT: number of PM samples, from the first to the last sample with an active SM
-- interval_ns DOUBLE: PM-sampling interval, ns
-- sampled_ns DOUBLE: time covered by the samples, ns
-- ramp_pct DOUBLE: share of the sampled time before SM activity first reaches half of the plateau, %
-- tail_pct DOUBLE: share of the sampled time after the last sample whose SM activity is at least half of the
--   plateau, %
-- bubble_pct DOUBLE: share of the sampled time between ramp-up and tail during which SM activity is below
--   half of the plateau, %
-- bubbles BIGINT: number of bubbles (intervals of low SM activity between ramp-up and tail)
-- longest_bubble_ns DOUBLE: duration of the longest bubble, ns
-- activity_pct DOUBLE: mean SM activity, % of the plateau
-- phases VARCHAR: the kernel's phases as text, as in kernel_phases; NULL if there are more than six phases
-- reason VARCHAR: why values are NULL, and what to collect; NULL if no values are missing
CREATE VIEW kernel_activity AS
WITH sampled AS (
    SELECT
        report_id,
        launch_id,
        count(*) AS samples,
        (max(at_ns) - min(at_ns)) / nullif(count(*) - 1, 0) AS interval_ns
    FROM _series_samples
    WHERE unit = 'sm'
    GROUP BY report_id, launch_id
),
shares AS (
    SELECT
        report_id,
        launch_id,
        100.0 * count(*) FILTER (WHERE state = 'ramp') / count(*) AS ramp_pct,
        100.0 * count(*) FILTER (WHERE state = 'tail') / count(*) AS tail_pct,
        100.0 * count(*) FILTER (WHERE state = 'bubble') / count(*) AS bubble_pct,
        100 * avg(share ORDER BY sample) AS activity_pct
    FROM _activity_samples
    GROUP BY report_id, launch_id
),
numbered AS (
    -- Samples of one bubble have the same number of busy samples before them.
    SELECT
        report_id,
        launch_id,
        state,
        count(if(state = 'busy', 1, NULL)) OVER (
            PARTITION BY report_id, launch_id ORDER BY sample
        ) AS busy_before
    FROM _activity_samples
),
lengths AS (
    SELECT report_id, launch_id, busy_before, count(*) AS samples
    FROM numbered
    WHERE state = 'bubble'
    GROUP BY report_id, launch_id, busy_before
),
bubbles AS (
    SELECT report_id, launch_id, count(*) AS bubbles, max(samples) AS longest
    FROM lengths
    GROUP BY report_id, launch_id
),
worded AS (
    SELECT
        report_id,
        launch_id,
        string_agg(
            concat(
                CASE
                    WHEN unit = 'idle' THEN 'SMs idle'
                    WHEN unit IS NULL THEN 'SMs busy'
                    ELSE printf('%s at %.0f %%', unit, unit_pct)
                END,
                printf(' until %.0f %%', end_pct)
            ),
            ', then ' ORDER BY phase
        ) AS phases
    FROM kernel_phases
    GROUP BY report_id, launch_id
    HAVING count(*) <= 6
)
SELECT
    l.report_id,
    l.launch_id,
    l.kernel_name,
    s.samples,
    s.interval_ns,
    s.samples * s.interval_ns AS sampled_ns,
    h.ramp_pct,
    h.tail_pct,
    h.bubble_pct,
    CASE WHEN h.report_id IS NOT NULL THEN coalesce(b.bubbles, 0) END AS bubbles,
    b.longest * s.interval_ns AS longest_bubble_ns,
    h.activity_pct,
    p.phases,
    CASE
        WHEN s.report_id IS NULL THEN coalesce(g.reason, 'not collected; use ncu --section PmSampling')
        WHEN h.report_id IS NULL
            THEN concat(
                s.samples, ' samples are too few; use ncu --pm-sampling-interval 1000'
            )
    END AS reason
FROM ncu_launches AS l
LEFT JOIN sampled AS s USING (report_id, launch_id)
LEFT JOIN shares AS h USING (report_id, launch_id)
LEFT JOIN bubbles AS b USING (report_id, launch_id)
LEFT JOIN worded AS p USING (report_id, launch_id)
LEFT JOIN collection_gaps AS g
    ON g.report_id = l.report_id AND g.table_name = 'ncu_instances' AND g.column_name = ''
ORDER BY l.report_id, l.launch_id;
