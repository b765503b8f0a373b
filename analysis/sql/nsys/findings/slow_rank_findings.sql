-- GPUs whose rank delays the others: they wait for it in collectives, although it does not wait for other
-- ranks itself. A rank for which the findings on the waiting GPUs state the cause has no row, unless its
-- lateness grows or comes in bursts. Steps that differ from the others count as well.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank
-- steps BIGINT: number of steps
-- late_steps BIGINT: number of steps in which the rank delays the others
-- late_ns BIGINT: lateness summed over the steps, ns
-- share_pct DOUBLE: share of the analyzed window in which another rank waits in collectives without other
--   work: that of the rank that waits longest, but not more than the lateness; for bursts late_ns as a
--   percentage of the time of all steps after warm-up, %
-- gain_pct DOUBLE: upper bound on the gain if the rank is as fast as the median rank: share_pct, %
-- pattern VARCHAR: how the lateness develops, as in slow_ranks; NULL if there are too few steps
-- course VARCHAR: the development as a clause
-- part VARCHAR: loop for bursts if the steady steps are analyzed, because the share is of all steps after
--   warm-up; else NULL
/* finding
claim = "slow_rank"
says = "delays the other ranks"
evidence = """\
rank {{ rank }} delays the median of the captured ranks at collectives in {{ late_steps }} of {{ steps }} \
steps, by {{ late_ns | ns }} in total{% if pattern == 'bursts' %}, which is {{ share }}{% else %}; another \
rank waits without other work for {{ share }}{% endif %}; {{ course }}"""
category = "communication"
question = "SELECT rank, step, behind_ns, waiting_ns, late_ns FROM rank_lateness"

[columns]
time_ns = "late_ns"
launches = "late_steps"
subclass = "pattern"

[words]
slow_rank = "a rank that delays the others"
[assumes]
slow_rank = "the rank arrived together with the median of the others, and no other work hid the wait"

[techniques.even_rank]
technique = "Find out what differs on the late rank"
detail = """\
A constant lateness points to the machine or to the rank's share of the work: lower clocks (power, \
temperature), a slower CPU, a larger shard, longer sequences, or logging and evaluation on one rank. A \
growing lateness points to something that accumulates: fragmented memory, a growing list, a leak. Bursts \
point to events: garbage collection, checkpoints, a data loader that falls behind, other jobs on the \
host."""
check_first = """\
Compare the kernel times of the rank with those of the others (kernel_categories): longer kernels point \
to clocks or to more work, longer idle time to the host."""
difficulty = "medium"
link = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
*/
CREATE VIEW slow_rank_findings AS
WITH others AS (
    SELECT s.job, s.rank, max(e.window_pct) AS window_pct
    FROM slow_ranks AS s
    JOIN _exposed_waits AS e ON e.job = s.job AND e.rank != s.rank
    GROUP BY s.job, s.rank
),
late AS (
    SELECT
        s.*,
        CASE
            WHEN s.pattern = 'bursts' THEN s.steps_pct
            ELSE least(s.steps_pct, coalesce(o.window_pct, 0))
        END AS waited_pct
    FROM slow_ranks AS s
    LEFT JOIN others AS o USING (job, rank)
),
-- Ranks for which a waiting GPU has a finding with the cause.
explained AS (
    SELECT DISTINCT c.job, c.last_rank AS rank
    FROM _rank_causes AS c
    JOIN _timeline_contributors AS t USING (report_id, device)
    WHERE t.bound = 'communication' AND c.cause IS NOT NULL
)
SELECT
    s.report_id,
    s.device,
    s.rank,
    s.steps,
    s.late_steps,
    s.late_ns,
    s.waited_pct AS share_pct,
    s.waited_pct AS gain_pct,
    s.pattern,
    CASE s.pattern
        WHEN 'constant' THEN 'the lateness is similar in most steps'
        WHEN 'growing' THEN
            printf('the lateness grows, from %.3g ms to %.3g ms per step', s.first_ns / 1e6, s.last_ns / 1e6)
        WHEN 'bursts' THEN printf('few steps have most of the lateness, up to %.3g ms', s.longest_ns / 1e6)
        WHEN 'irregular' THEN 'the lateness varies from step to step'
        ELSE 'there are too few steps to see how the lateness develops'
    END AS course,
    CASE WHEN s.pattern = 'bursts' AND w.kind = 'steady' THEN 'loop' END AS part
FROM late AS s
JOIN analysis_windows AS w ON w.report_id = s.report_id AND w.device IS NOT DISTINCT FROM s.device
LEFT JOIN explained AS e USING (job, rank)
WHERE s.waited_pct >= threshold('lateness.late_pct')
    AND (e.rank IS NULL OR s.pattern IN ('growing', 'bursts'))
ORDER BY s.report_id, s.device, s.rank;
