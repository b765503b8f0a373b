-- GPUs that wait for other stages of their pipeline for a notable share of the steps.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- stage BIGINT: stage of the pipeline, from 0
-- stages BIGINT: number of stages
-- microbatches BIGINT: number of microbatches per step; NULL if unknown
-- schedule VARCHAR: schedule, as in pipeline_schedules
-- bubble_ns BIGINT: bubble of the stage over the analyzed steps, ns
-- receive_ns BIGINT: part of bubble_ns in messages of the pipeline, ns
-- bubble_pct DOUBLE: bubble as a percentage of the time in which the microbatches pass through the pipeline
-- ideal_pct DOUBLE: bubble of an ideal pipeline, %; NULL if unknown
-- share_pct DOUBLE: bubble_ns as a percentage of the steps
-- gain_pct DOUBLE: upper bound on the gain from smaller bubbles, %: the bubble of the stage that waits least
-- pipeline VARCHAR: schedule, microbatches and ideal bubble in parentheses; empty if unknown
/* finding
claim = "pipeline_bubble"
says = "waits for other stages of the pipeline"
evidence = """\
stage {{ stage }} (of 0 to {{ stages - 1 }}) has no work for {{ '%.1f' | format(bubble_pct) }} % of the \
time in which the microbatches pass{{ pipeline }}; the bubble takes {{ share }}; {{ receive_ns | ns }} \
of it are in messages of the pipeline"""
category = "communication"
question = "SELECT stage, rank, window_ns, work_ns, receive_ns, idle_ns, bubble_pct FROM pipeline_stages"

[columns]
time_ns = "bubble_ns"
subclass = "schedule"

[words]
pipeline_bubble = "bubbles of the pipeline"
[assumes]
pipeline_bubble = "the stage that waits least never waited"

[techniques.smaller_bubble]
technique = "Use more microbatches per step, or a schedule with smaller bubbles"
detail = """\
The bubble of an ideal pipeline is (p - 1) / (m v + p - 1), with p stages, m microbatches and v chunks \
of the model per stage. More microbatches, interleaved stages (v > 1) or a backward pass that is split \
in two (zero bubble) make it smaller. Activations of more microbatches need more memory, and \
interleaving sends more messages."""
check_first = """\
Whether the bubble exceeds the ideal one (pipeline_schedules): the excess comes from stages with \
different work, from slow messages (rank_pairs) or from the host, not from the schedule."""
difficulty = "medium"
link = "https://docs.nvidia.com/megatron-core/developer-guide/latest/index.html"
*/
CREATE VIEW pipeline_bubble_findings AS
SELECT
    s.report_id,
    s.device,
    s.stage,
    p.stages,
    p.microbatches,
    p.schedule,
    round(s.bubble_ns * s.steps)::BIGINT AS bubble_ns,
    round(s.receive_ns * s.steps)::BIGINT AS receive_ns,
    s.bubble_pct,
    p.ideal_pct,
    s.step_pct AS share_pct,
    p.least_pct AS gain_pct,
    CASE WHEN p.ideal_pct IS NOT NULL THEN printf(
        ' (schedule %s, %d microbatches, ideal bubble %.1f %%)', p.schedule, p.microbatches, p.ideal_pct
    ) ELSE '' END AS pipeline
FROM pipeline_stages AS s
JOIN pipeline_schedules AS p USING (job, group_id)
WHERE s.step_pct >= threshold('pipeline.bubble_pct')
QUALIFY row_number() OVER (
    PARTITION BY s.report_id, s.device ORDER BY s.step_pct DESC, s.group_id, s.stage
) = 1
ORDER BY s.report_id, s.device;
