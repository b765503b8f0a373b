-- Operators of many kernels that take a notable share of a step, and what to do about each as a whole.
-- What is done already, such as a fused optimizer, is no finding; nor is what a benchmark times.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: 1 has the largest share
-- operator VARCHAR: as in operator_times
-- share_pct DOUBLE: share of the time of the steps, %
-- weight_pct DOUBLE: what stands for its bound in the order of findings where there is none: its share, at
--   most that by which faster kernels can shorten the step, and that in which the GPU waits for input, if it
--   does: then they would only wait longer, %
-- step_ns DOUBLE: time of its kernels in a step, mean, ns; NULL without steps
-- step_launches BIGINT: number of launches in a step, mean; NULL without steps
-- kernels BIGINT: number of different kernels
-- longest VARCHAR: its kernels with most time, as in operator_times
-- names VARCHAR[]: full names of its kernels
-- technique VARCHAR: key in the knowledge base
-- difficulty VARCHAR: low, medium or high
-- gain_pct DOUBLE: bound on the gain, % of the time of the steps; NULL where none can be derived
-- floor VARCHAR: what the bound assumes to stay: around (the kernels around the operator's own)
CREATE VIEW operator_findings AS
-- GPUs that wait much for input data, and for what share of the window, %.
WITH waits_for_input AS (
    SELECT c.report_id, c.device, c.share_pct
    FROM _timeline_contributors AS c
    JOIN _timeline_features AS f USING (report_id, device)
    WHERE c.bound = 'host' AND list_contains(f.features, 'input_data')
)
SELECT
    o.report_id,
    o.device,
    row_number() OVER (
        PARTITION BY o.report_id, o.device ORDER BY o.share_pct DESC, o.operator, t.rank
    ) AS rank,
    o.operator,
    o.share_pct,
    least(o.share_pct, l.most_pct, i.share_pct) AS weight_pct,
    o.time_ns / o.steps AS step_ns,
    round(o.launches / o.steps)::BIGINT AS step_launches,
    o.kernels,
    o.longest,
    o.names,
    t.technique,
    t.difficulty,
    CASE t.keeps[1] WHEN 'around' THEN o.own_pct END AS gain_pct,
    CASE WHEN gain_pct IS NOT NULL THEN t.keeps[1] END AS floor
FROM operator_times AS o
LEFT JOIN _compiled_steps AS e ON e.report_id = o.report_id AND e.device = o.device
JOIN _techniques AS t
    ON t.bound = 'operator' AND t.subclass = o.operator
        AND list_has_all([if(e.is_compiled, 'compiled', 'eager')], t.features)
LEFT JOIN _kernel_limits AS l ON l.report_id = o.report_id AND l.device = o.device
LEFT JOIN waits_for_input AS i ON i.report_id = o.report_id AND i.device = o.device
ANTI JOIN benchmark_loops AS b ON b.report_id = o.report_id AND b.device = o.device
WHERE o.share_pct >= threshold('operator.share_pct')
    AND o.launches > coalesce(o.steps, 1)
    -- One kernel of these is all of the operator already.
    AND (o.kernels > 1 OR o.operator NOT IN ('normalization', 'batch_norm', 'cross_entropy'))
ORDER BY o.report_id, o.device, rank;
