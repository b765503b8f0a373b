-- GPUs whose program waits for requests during a notable share of the steady steps, with the time that a step
-- takes without this wait.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- no_work_ns BIGINT: time in the steady steps in which the GPU is idle and the program waits for requests, ns
-- share_pct DOUBLE: no_work_ns as a percentage of the steady steps
-- steps BIGINT: number of steady steps
-- median_ns DOUBLE: median time of a step without waiting for requests, ns
-- p95_ns DOUBLE: 95th percentile of the time of a step without waiting for requests, ns
-- busy_pct DOUBLE: percentage of the time without waiting for requests during which the GPU is busy
-- weight_pct DOUBLE: 0, because the program cannot save this time
/* finding
claim = "waiting_for_requests"
says = "waits for work: the program has no request to process"
evidence = """\
this takes {{ share }} and is not the program's fault; without the wait, a step takes \
{{ median_ns | ns }} (median; p95 {{ p95_ns | ns }}), and the GPU is busy for \
{{ '%.0f' | format(busy_pct) }} % of that time"""
category = "no_work"
question = "SELECT no_work_ns, share_pct, steps, median_ns, p95_ns, busy_pct FROM no_work_findings"

[columns]
time_ns = "no_work_ns"
launches = "steps"

[techniques.share_gpu]
technique = "Share the GPU with other work: more requests, more models, MPS or MIG"
detail = """\
The GPU is idle because no request is there, so nothing in the program can save this time. Use the spare \
capacity: route more requests to this process, serve more models from it, share the GPU with other processes \
(MPS, MIG), or use a smaller GPU. To shorten the time of a request, profile at the load that you expect."""
check_first = """\
Whether the load during the capture is the load in production, and how much longer a request may take \
(no_work_findings: median_ns, p95_ns)."""
difficulty = "low"
link = "https://docs.nvidia.com/deploy/mps/index.html"
*/
CREATE VIEW no_work_findings AS
WITH steady AS (
    SELECT
        report_id,
        device,
        step_index,
        any_value(step_ns) AS step_ns,
        coalesce(sum(time_ns) FILTER (category = 'no_work'), 0) AS no_work_ns,
        coalesce(sum(time_ns) FILTER (is_busy(category)), 0) AS used_ns
    FROM step_budget
    WHERE phase = 'steady'
    GROUP BY report_id, device, process_id, step_index
)
SELECT
    report_id,
    device,
    sum(no_work_ns)::BIGINT AS no_work_ns,
    100.0 * sum(no_work_ns) / nullif(sum(step_ns), 0) AS share_pct,
    count(*) AS steps,
    median(step_ns - no_work_ns) AS median_ns,
    quantile_cont(step_ns - no_work_ns, 0.95) AS p95_ns,
    100.0 * sum(used_ns) / nullif(sum(step_ns - no_work_ns), 0) AS busy_pct,
    0::DOUBLE AS weight_pct
FROM steady
GROUP BY report_id, device
HAVING share_pct >= threshold('timeline.contributor_pct')
ORDER BY report_id, device;
