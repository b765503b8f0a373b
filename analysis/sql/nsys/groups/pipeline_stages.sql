-- Bubbles of each pipeline stage per step: time without work on microbatches, from the first microbatch of
-- any stage to the end of the last backward pass. Pipelines whose ranks were not all captured have no rows.
-- @materialize
--
-- job VARCHAR: job, as in job_ranks
-- group_id VARCHAR: pipeline, as in rank_groups
-- stage BIGINT: stage of the pipeline, from 0
-- rank BIGINT: rank
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- steps BIGINT: number of analyzed steps
-- window_ns DOUBLE: time in which the microbatches pass through the pipeline, mean of the steps, ns
-- work_ns DOUBLE: time in which kernels or copies run, without messages of the pipeline, collectives over
--   gradients and the optimizer, ns
-- receive_ns DOUBLE: time in a message of the pipeline while no work runs, ns
-- idle_ns DOUBLE: time in which neither work on microbatches nor a message runs, ns
-- transfer_ns DOUBLE: time in which both sides were in the messages that the stage receives, ns; part of
--   receive_ns if no work ran meanwhile; NULL if the stage receives none
-- bubble_ns DOUBLE: bubble: receive_ns + idle_ns, ns
-- bubble_pct DOUBLE: bubble_ns as a percentage of window_ns
-- step_pct DOUBLE: bubble_ns as a percentage of the step
-- ends_with VARCHAR: end of the window: backward pass, or last message if one thread launches both passes
CREATE VIEW pipeline_stages AS
WITH sums AS (
    SELECT
        job,
        group_id,
        stage,
        rank,
        report_id,
        device,
        count(*) AS steps,
        sum(window_ns) / count(*) AS window_ns,
        sum(work_ns) / count(*) AS work_ns,
        sum(busy_ns - work_ns) / count(*) AS receive_ns,
        sum(window_ns - busy_ns) / count(*) AS idle_ns,
        sum(window_ns - work_ns) / count(*) AS bubble_ns,
        bool_or(cut) AS cut
    FROM _stage_times
    GROUP BY job, group_id, stage, rank, report_id, device
),
received AS (
    SELECT p.job, o.group_id, p.target AS rank, sum(p.transfer_ns) AS transfer_ns
    FROM _message_pairs AS p
    JOIN _group_ops AS o ON o.report_id = p.target_report AND o.op_id = p.target_op
    WHERE p.analysed
    GROUP BY p.job, o.group_id, p.target
)
SELECT
    s.job,
    s.group_id,
    s.stage,
    s.rank,
    s.report_id,
    s.device,
    s.steps,
    s.window_ns,
    s.work_ns,
    s.receive_ns,
    s.idle_ns,
    r.transfer_ns / s.steps AS transfer_ns,
    s.bubble_ns,
    100.0 * s.bubble_ns / s.window_ns AS bubble_pct,
    100.0 * s.bubble_ns / nullif(w.time_ns / w.steps, 0) AS step_pct,
    if(s.cut, 'last message', 'backward pass') AS ends_with
FROM sums AS s
JOIN analysis_windows AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device
LEFT JOIN received AS r ON r.job = s.job AND r.group_id = s.group_id AND r.rank = s.rank
ORDER BY s.job, s.group_id, s.stage;
