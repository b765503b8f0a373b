-- Launches with a busy tensor pipe whose tensor operations were not counted, so that the other FLOP counters
-- do not show the launch's work.
CREATE VIEW _tensor_uncounted AS
WITH pipes AS (
    SELECT
        report_id,
        launch_id,
        max(pct) FILTER (WHERE pipe = 'tensor') AS tensor_pct,
        max(pct) FILTER (WHERE pipe = 'fma') AS fma_pct
    FROM kernel_pipes
    GROUP BY report_id, launch_id
),
counted AS (
    SELECT DISTINCT m.report_id, m.launch_id
    FROM ncu_metrics AS m
    JOIN _tensor_metrics AS t USING (metric)
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE coalesce(cc_number(l.cc) BETWEEN t.cc_low AND t.cc_high, true)
        AND t.part != 'peak_per_cycle'
        AND m.value IS NOT NULL
)
SELECT p.report_id, p.launch_id
FROM pipes AS p
ANTI JOIN counted USING (report_id, launch_id)
WHERE p.tensor_pct >= threshold('rule.pipe_low_pct')
    -- Moves with packed FP16 instructions run on this pipe too.
    OR (p.tensor_pct >= threshold('flop.tensor_pipe_pct') AND p.tensor_pct > coalesce(p.fma_pct, 0));
