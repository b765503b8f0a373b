-- GPUs whose rank delays the others: it arrives late at collectives, although it does not wait for other
-- ranks itself.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- rank BIGINT: rank
-- steps BIGINT: number of steps
-- late_steps BIGINT: number of steps in which the rank delays the others
-- late_ns BIGINT: lateness summed over the steps, ns
-- share_pct DOUBLE: late_ns as a percentage of the analyzed window
-- gain_pct DOUBLE: upper bound on the gain if the rank is as fast as the median rank, %
-- pattern VARCHAR: how the lateness develops, as in slow_ranks; NULL if there are too few steps
-- course VARCHAR: the development as a clause
/* finding
claim = "slow_rank"
says = "delays the other ranks"
evidence = """\
rank {{ rank }} arrives at collectives after the median of the captured ranks in {{ late_steps }} of {{ \
steps }} steps, by {{ late_ns | ns }} in total, which is {{ share }}; {{ course }}"""
question = "SELECT rank, step, behind_ns, waiting_ns, late_ns FROM rank_lateness"

[columns]
time_ns = "late_ns"
launches = "late_steps"
subclass = "pattern"

[words]
slow_rank = "a rank that delays the others"
[assumes]
slow_rank = "the rank arrived together with the median of the captured ranks"

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
SELECT
    report_id,
    device,
    rank,
    steps,
    late_steps,
    late_ns,
    window_pct AS share_pct,
    window_pct AS gain_pct,
    pattern,
    CASE pattern
        WHEN 'constant' THEN 'the lateness is similar in most steps'
        WHEN 'growing' THEN
            printf('the lateness grows, from %.3g ms to %.3g ms per step', first_ns / 1e6, last_ns / 1e6)
        WHEN 'bursts' THEN printf('few steps have most of the lateness, up to %.3g ms', longest_ns / 1e6)
        WHEN 'irregular' THEN 'the lateness varies from step to step'
        ELSE 'there are too few steps to see how the lateness develops'
    END AS course
FROM slow_ranks
WHERE window_pct >= threshold('lateness.late_pct')
ORDER BY report_id, device, rank;
