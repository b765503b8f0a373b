-- GPUs with the pipeline stage that has clearly more work than the mean of the stages: all others wait for
-- it.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- stage BIGINT: stage of the pipeline, from 0
-- stages BIGINT: number of stages
-- work_ns BIGINT: work of the stage per step, ns
-- mean_ns BIGINT: mean work of the stages per step, ns
-- imbalance DOUBLE: work_ns relative to mean_ns
-- excess_ns BIGINT: work of the stage beyond the mean over the analyzed steps, ns
-- share_pct DOUBLE: excess_ns as a percentage of the steps
-- gain_pct DOUBLE: upper bound on the gain from stages with equal work, %
/* finding
claim = "stage_imbalance"
says = "has more work than the other stages of the pipeline"
evidence = """\
stage {{ stage }} (of 0 to {{ stages - 1 }}) works for {{ work_ns | ns }} per step, the mean of the \
stages is {{ mean_ns | ns }} (factor {{ '%.2f' | format(imbalance) }}); the difference is {{ share }}"""
question = "SELECT stage, rank, work_ns, receive_ns, idle_ns FROM pipeline_stages"

[columns]
time_ns = "excess_ns"

[words]
stage_imbalance = "stages with different work"
[assumes]
stage_imbalance = "all stages had the mean work and the bubbles did not grow"

[techniques.even_stages]
technique = "Split the model so that all stages have the same work"
detail = """\
Move layers from the slowest stage to others. The first stage also has the embedding, and the last stage \
the output layer and the loss: give these stages fewer transformer layers (in Megatron-LM \
--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or a pipeline layout)."""
check_first = """\
Whether the slowest stage has more kernels or longer kernels (kernel_categories of its report): longer \
kernels for the same layers point to lower clocks of its GPU, not to the split."""
difficulty = "medium"
link = "https://docs.nvidia.com/megatron-core/developer-guide/latest/index.html"
*/
CREATE VIEW stage_imbalance_findings AS
SELECT
    s.report_id,
    s.device,
    s.stage,
    p.stages,
    round(s.work_ns)::BIGINT AS work_ns,
    round(s.work_ns - p.excess_ns)::BIGINT AS mean_ns,
    p.imbalance,
    round(p.excess_ns * s.steps)::BIGINT AS excess_ns,
    100.0 * p.excess_ns / nullif(w.time_ns / w.steps, 0) AS share_pct,
    100.0 * p.excess_ns / nullif(w.time_ns / w.steps, 0) AS gain_pct
FROM pipeline_stages AS s
JOIN pipeline_schedules AS p ON p.job = s.job AND p.group_id = s.group_id AND p.slowest_rank = s.rank
JOIN analysis_windows AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device
WHERE p.imbalance >= threshold('pipeline.imbalance')
QUALIFY row_number() OVER (PARTITION BY s.report_id, s.device ORDER BY p.excess_ns DESC, s.group_id) = 1
ORDER BY s.report_id, s.device;
