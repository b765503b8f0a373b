-- GPUs that are repeatedly idle between the analyzed steps while the program starts processes, for example
-- because a data loader starts its workers in each epoch. Steps that contain such an idle interval are not
-- analyzed, because they differ from the other steps.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- intervals BIGINT: number of idle intervals during which processes start
-- idle_ns BIGINT: total length of the idle intervals, ns
-- share_pct DOUBLE: idle_ns as a percentage of the time from the first to the last steady step
-- longest_ns BIGINT: length of the longest idle interval, ns
-- technique VARCHAR: key of the technique in the knowledge base
-- difficulty VARCHAR: difficulty of the technique: low, medium or high
/* finding
claim = "process_starts"
says = "idles between steps while the program starts processes, for example at each epoch"
evidence = "{{ intervals | counted('idle interval') }} with {{ idle_ns | ns }} in total, {{ share }}"
question = "SELECT intervals, idle_ns, longest_ns, share_pct FROM starting_findings"
part = "between"

[columns]
time_ns = "idle_ns"
launches = "intervals"
*/
CREATE VIEW starting_findings AS
WITH intervals AS (
    SELECT g.report_id, g.device, i.end_ns - i.start_ns AS dur_ns, v.end_ns - v.start_ns AS whole_ns
    FROM _starting_gaps AS s
    JOIN _idle AS i USING (track, op_id)
    JOIN _gpus AS g USING (track)
    JOIN analysis_windows AS v ON v.report_id = g.report_id AND v.device IS NOT DISTINCT FROM g.device
    ANTI JOIN _analysed AS a ON a.track = i.track AND a.window_id = i.window_id
    WHERE v.kind = 'steady' AND i.start_ns >= v.start_ns AND i.end_ns <= v.end_ns
),
sums AS (
    SELECT report_id, device, count(*) AS intervals, sum(dur_ns)::BIGINT AS idle_ns,
        100.0 * sum(dur_ns) / any_value(whole_ns) AS share_pct, max(dur_ns) AS longest_ns
    FROM intervals
    GROUP BY report_id, device
)
SELECT s.report_id, s.device, s.intervals, s.idle_ns, s.share_pct, s.longest_ns, t.technique, t.difficulty
FROM sums AS s
JOIN _techniques AS t ON t.bound = 'process_starts'
WHERE s.intervals >= threshold('timeline.loop_repeats')
    AND s.share_pct >= threshold('timeline.contributor_pct')
ORDER BY s.report_id, s.device;
