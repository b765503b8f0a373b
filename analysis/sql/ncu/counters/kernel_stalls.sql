-- Warp states of each launch. ncu's two metric families, cycles per issued instruction (WarpStateStats) and
-- warp samples (SourceCounters), are listed under the same state names. `selected` means that the warp issued
-- an instruction, and `not_selected` means that the warp was eligible but another warp was selected: neither
-- is a stall.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- reason VARCHAR: warp state, such as long_scoreboard
-- family VARCHAR: group of the warp state: memory, shared, sync, execution, frontend, issue or misc
-- is_stall BOOLEAN: whether the state is a stall; false for selected and not_selected
-- cycles DOUBLE: cycles that a warp spends in the state per issued instruction; NULL without WarpStateStats
-- pct DOUBLE: share of the warp latency (cycles per issued instruction) that is spent in the state, %
-- samples BIGINT: number of warp samples in the state; NULL without SourceCounters
-- samples_pct DOUBLE: share of the launch's warp samples that are in the state, %
-- samples_not_issued BIGINT: number of warp samples in the state in cycles in which the scheduler issued no
--   instruction; NULL without SourceCounters
-- rank BIGINT: rank among the launch's stall reasons, from 1 for the largest; NULL if the state is not a
--   stall
CREATE VIEW kernel_stalls AS
WITH valued AS (
    SELECT
        m.report_id,
        m.launch_id,
        s.reason,
        s.family,
        max(m.value) FILTER (WHERE s.part = 'cycles') AS cycles_new,
        max(m.value) FILTER (WHERE s.part = 'cycles_old') AS cycles_old,
        max(m.value) FILTER (WHERE s.part = 'share_old') AS share_old,
        max(m.value) FILTER (WHERE s.part = 'samples') AS samples,
        max(m.value) FILTER (WHERE s.part = 'samples_not_issued') AS samples_not_issued
    FROM ncu_metrics AS m
    JOIN _stall_metrics AS s USING (metric)
    WHERE m.value IS NOT NULL
    GROUP BY m.report_id, m.launch_id, s.reason, s.family
),
shares AS (
    SELECT
        v.*,
        v.reason NOT IN ('selected', 'not_selected') AS is_stall,
        coalesce(v.cycles_new, v.cycles_old) AS cycles,
        -- If the latency is missing, the sum of the states approximates it, up to drift between passes.
        coalesce(
            100 * coalesce(v.cycles_new, v.cycles_old) / nullif(coalesce(
                w.warp_latency,
                sum(coalesce(v.cycles_new, v.cycles_old)) OVER launch
            ), 0),
            v.share_old
        ) AS pct,
        100 * v.samples / nullif(
            coalesce(w.samples, sum(v.samples) OVER launch), 0
        ) AS samples_pct
    FROM valued AS v
    JOIN kernel_metrics AS w USING (report_id, launch_id)
    WINDOW launch AS (
        PARTITION BY v.report_id, v.launch_id
        ORDER BY v.reason
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
)
SELECT
    report_id,
    launch_id,
    reason,
    family,
    is_stall,
    cycles,
    pct,
    try_cast(samples AS BIGINT) AS samples,
    samples_pct,
    try_cast(samples_not_issued AS BIGINT) AS samples_not_issued,
    CASE WHEN is_stall THEN row_number() OVER (
        PARTITION BY report_id, launch_id, is_stall
        ORDER BY coalesce(pct, samples_pct) DESC NULLS LAST, reason
    ) END AS rank
FROM shares
ORDER BY report_id, launch_id, rank NULLS LAST, reason;
