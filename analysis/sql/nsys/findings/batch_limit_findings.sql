-- Servers whose engine decodes batches of the same largest size while other requests wait for their prefill:
-- the batch is at its limit, or memory for keys and values is.
--
-- report_id VARCHAR: report of the timeline
-- device BIGINT: physical GPU number
-- rate DOUBLE: arrival rate of the load, requests/s
-- batch BIGINT: largest number of requests in a batch that decodes
-- iterations BIGINT: number of iterations with this batch while requests wait
-- limited_ns BIGINT: their time, ns
-- waiting DOUBLE: mean number of requests that wait meanwhile
-- share_pct DOUBLE: limited_ns, % of the captured window
-- gain_pct DOUBLE: upper bound on the gain, % of the captured window: a batch with all waiting requests needs
--   fewer iterations for as many tokens
/* finding
claim = "batch_limit"
says = """decodes at most {{ batch | counted('request') }} at a time while other requests wait"""
evidence = """\
{% if rate %}at {{ rate | request_rate }}, {% endif %}{{ iterations | \
counted('iteration') }} with a batch of {{ batch }} take {{ share }}; meanwhile \
{{ '%.1f' | format(waiting) }} requests wait on average"""
question = """\
SELECT rate, batch, iterations, limited_ns, waiting, share_pct, gain_pct FROM batch_limit_findings"""
part = "window"

[columns]
time_ns = "limited_ns"
launches = "iterations"

[assumes]
larger_batch = "an iteration with all waiting requests takes as long as now"

[techniques.larger_decode_batch]
technique = "Allow larger batches, or more memory for keys and values"
detail = """\
A decode iteration reads all weights, whatever the number of requests, so larger batches cost little until \
memory bandwidth or compute is used up. Raise the limit of the engine (max_num_seqs in vLLM, \
max_running_requests in SGLang, max_batch_size in TensorRT-LLM), and if memory for keys and values is the \
limit, give it more, or store keys and values in 8 bits."""
check_first = """\
Which limit it is: that of the batch, or of memory for keys and values (the engine's log, or its metrics)."""
difficulty = "low"
link = "https://docs.nvidia.com/deeplearning/performance/dl-performance-gpu-background/index.html"
*/
CREATE VIEW batch_limit_findings AS
WITH events AS (
    SELECT r.report_id, r.sent_ns AS time_ns, 1 AS delta, NULL::BIGINT AS iteration
    FROM _engine_requests AS r
    WHERE r.sent_ns IS NOT NULL
    UNION ALL
    SELECT r.report_id, coalesce(i.start_ns, r.first_token_ns, r.end_ns), -1, NULL
    FROM _engine_requests AS r
    LEFT JOIN serving_iterations AS i ON i.report_id = r.report_id AND i.iteration = r.prefill
    WHERE r.sent_ns IS NOT NULL
    UNION ALL
    SELECT report_id, start_ns, 0, iteration
    FROM serving_iterations
),
queued AS (
    SELECT report_id, iteration, sum(delta) OVER (
        PARTITION BY report_id ORDER BY time_ns, delta, iteration ROWS UNBOUNDED PRECEDING
    ) AS waiting
    FROM events
    WHERE time_ns IS NOT NULL
),
decoding AS (
    SELECT
        i.report_id, i.device, i.rate, i.time_ns, i.decodes, q.waiting,
        max(i.decodes) OVER (PARTITION BY i.report_id) AS batch
    FROM serving_iterations AS i
    JOIN queued AS q USING (report_id, iteration)
    WHERE i.decodes > 0
),
sums AS (
    SELECT
        report_id,
        device,
        any_value(rate) AS rate,
        any_value(batch) AS batch,
        count(*) FILTER (decodes = batch) AS iterations,
        sum(time_ns) FILTER (decodes = batch)::BIGINT AS limited_ns,
        sum(time_ns) AS queued_ns,
        (sum(time_ns * waiting) FILTER (decodes = batch))::DOUBLE AS waited,
        ordered_sum(CASE WHEN decodes = batch THEN time_ns * waiting / (batch + waiting) END) AS saved_ns
    FROM decoding
    WHERE waiting > 0
    GROUP BY report_id, device
)
SELECT
    s.report_id,
    s.device,
    s.rate,
    s.batch,
    s.iterations,
    s.limited_ns,
    s.waited / s.limited_ns AS waiting,
    100.0 * s.limited_ns / w.window_ns AS share_pct,
    100.0 * s.saved_ns / w.window_ns AS gain_pct
FROM sums AS s
JOIN _engine_windows AS w USING (report_id)
WHERE s.iterations >= threshold('timeline.loop_repeats')
    AND 100.0 * s.limited_ns / w.window_ns >= threshold('timeline.contributor_pct')
    AND 100.0 * s.limited_ns / s.queued_ns >= threshold('serving.limited_pct')
ORDER BY s.report_id, s.device;
