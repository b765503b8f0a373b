-- Utilization of each SM pipe, relative to elapsed cycles. Pipe utilization does not measure FLOPs: some GPUs
-- run packed FP16 arithmetic on the tensor pipe without any tensor operation.
--
-- report_id VARCHAR: report
-- launch_id BIGINT: launch number in the report, from 0
-- pipe VARCHAR: tensor, fma, fp64, fp16, alu, xu or lsu
-- pct DOUBLE: utilization, % of peak
-- rank BIGINT: rank of the pipe by utilization within the launch, from 1 for the busiest
CREATE VIEW kernel_pipes AS
WITH valued AS (
    SELECT m.report_id, m.launch_id, p.pipe, arg_min(m.value, p.rank) AS pct
    FROM ncu_metrics AS m
    JOIN _pipe_metrics AS p USING (metric)
    JOIN ncu_launches AS l USING (report_id, launch_id)
    WHERE coalesce(cc_number(l.cc) BETWEEN p.cc_low AND p.cc_high, true)
    GROUP BY m.report_id, m.launch_id, p.pipe
)
SELECT
    report_id,
    launch_id,
    pipe,
    pct,
    row_number() OVER (PARTITION BY report_id, launch_id ORDER BY pct DESC, pipe) AS rank
FROM valued
WHERE pct IS NOT NULL
ORDER BY report_id, launch_id, rank;
