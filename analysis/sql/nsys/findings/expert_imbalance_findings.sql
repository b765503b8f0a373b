-- GPUs that wait in the all-to-alls of their experts, because the tokens are distributed unevenly over the
-- ranks.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- ranks VARCHAR: ranks that share the experts
-- load DOUBLE: bytes that the rank receives, relative to the mean of the ranks
-- imbalance DOUBLE: largest load of a rank over the analyzed window
-- call_imbalance DOUBLE: largest load within a call, median of the calls
-- loaded_rank BIGINT: rank with the largest load
-- waiting_ns BIGINT: time that the rank waits in all-to-alls of its experts, ns
-- share_pct DOUBLE: waiting_ns as a percentage of the analyzed window
-- gain_pct DOUBLE: upper bound on the gain from evenly distributed tokens, %
/* finding
claim = "expert_imbalance"
says = "waits for ranks whose experts have more tokens"
evidence = """\
ranks {{ ranks }} share experts; rank {{ loaded_rank }} receives {{ '%.2f' | format(imbalance) }} times \
the mean of the ranks, and the busiest rank of a call {{ '%.2f' | format(call_imbalance) }} times the \
mean; this GPU waits in the all-to-alls for {{ share }}"""
category = "communication"
question = "SELECT rank, tokens, bytes, load, imbalance, call_imbalance FROM expert_loads"

[columns]
time_ns = "waiting_ns"

[words]
expert_imbalance = "unevenly distributed tokens of experts"
[assumes]
expert_imbalance = "all ranks received the same number of tokens"

[techniques.even_experts]
technique = "Distribute tokens evenly over the ranks of the experts"
detail = """\
Use an auxiliary loss or a bias that balances the router, a capacity factor that drops or moves surplus \
tokens, or place experts so that each rank gets busy and idle ones. For inference, replicate the busiest \
experts on several ranks."""
check_first = """\
Whether the same rank has the largest load in all calls (expert_loads): then another placement of \
experts suffices; if the busiest rank changes from call to call, the router must be balanced. Balancing \
the router changes the training."""
difficulty = "high"
link = "https://docs.nvidia.com/megatron-core/developer-guide/latest/index.html"
*/
CREATE VIEW expert_imbalance_findings AS
WITH waits AS (
    SELECT w.job, w.communicator AS group_id, w.report_id, w.device, sum(w.waiting_ns)::BIGINT AS waiting_ns
    FROM _group_waits AS w
    WHERE w.operation = 'AllToAll' AND w.analysed
    GROUP BY w.job, w.communicator, w.report_id, w.device
),
loaded AS (
    SELECT job, group_id, arg_max(rank, (load, -rank)) AS rank
    FROM expert_loads
    GROUP BY job, group_id
)
SELECT
    e.report_id,
    e.device,
    g.ranks,
    e.load,
    e.imbalance,
    e.call_imbalance,
    l.rank AS loaded_rank,
    w.waiting_ns,
    100.0 * w.waiting_ns / nullif(a.time_ns, 0) AS share_pct,
    100.0 * w.waiting_ns / nullif(a.time_ns, 0) AS gain_pct
FROM expert_loads AS e
JOIN rank_groups AS g USING (job, group_id)
JOIN loaded AS l USING (job, group_id)
JOIN waits AS w
    ON w.job = e.job
        AND w.group_id = e.group_id
        AND w.report_id = e.report_id
        AND w.device IS NOT DISTINCT FROM e.device
JOIN analysis_windows AS a ON a.report_id = e.report_id AND a.device IS NOT DISTINCT FROM e.device
WHERE greatest(e.imbalance, e.call_imbalance) >= threshold('experts.imbalance')
    AND share_pct >= threshold('timeline.contributor_pct')
QUALIFY row_number() OVER (PARTITION BY e.report_id, e.device ORDER BY w.waiting_ns DESC, e.group_id) = 1
ORDER BY e.report_id, e.device;
