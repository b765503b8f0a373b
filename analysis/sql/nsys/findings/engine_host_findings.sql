-- Servers whose engine starts no iteration for a notable share of the captured window although requests are
-- in progress: the host works in the loop of the engine, for example on a tokenizer, on the schedule or on
-- responses. Time in which it waits for files that it flushes is another finding.
--
-- report_id VARCHAR: report of the timeline
-- device BIGINT: physical GPU number
-- rate DOUBLE: arrival rate of the load, requests/s
-- intervals BIGINT: number of intervals between iterations with requests in progress
-- between_ns BIGINT: total time of these intervals, without flushes of files, ns
-- median_ns DOUBLE: median length of such an interval, ns
-- code VARCHAR: the range, function or call that takes most of the time on the engine's thread; NULL if
--   nothing was recorded, or nothing stands out
-- code_pct DOUBLE: its share of the time between iterations, %
-- share_pct DOUBLE: between_ns, % of the captured window
-- gain_pct DOUBLE: upper bound on the gain, % of the captured window: share_pct
/* finding
claim = "engine_host"
says = """waits for the host between iterations of the server's engine\
{% if code is not none %}, mostly for {{ code }}{% endif %}"""
evidence = """\
{% if rate %}at {{ rate | request_rate }}, {% endif %}{{ intervals | \
counted('interval') }} between iterations with requests in progress take {{ between_ns | ns }} \
(median {{ median_ns | ns }}), {{ share }}\
{% if code is not none %}; {{ code }} takes {{ '%.0f' | format(code_pct) }} % of this time{% endif %}"""
question = """\
SELECT rate, intervals, between_ns, median_ns, code, code_pct, share_pct FROM engine_host_findings"""
part = "window"

[columns]
time_ns = "between_ns"
launches = "intervals"

[assumes]
overlapped = "all of this work overlaps with iterations"

[techniques.engine_loop]
technique = "Move work of the host out of the engine's loop, or overlap it with the GPU"
detail = """\
While the host works between two iterations, every request in progress waits. Tokenize prompts and decode \
responses in other threads or processes (Python threads share the GIL), prepare the next iteration while the \
GPU computes this one (asynchronous scheduling), and send responses from a process of their own."""
check_first = """\
Which code runs between iterations (engine_host_findings: code), and whether the engine has an option for \
asynchronous scheduling."""
difficulty = "medium"
link = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"
*/
CREATE VIEW engine_host_findings AS
WITH flushed AS (
    SELECT report_id, sum(time_ns)::BIGINT AS time_ns
    FROM _engine_flushes
    GROUP BY report_id
),
sums AS (
    SELECT
        w.report_id,
        w.device,
        w.rate,
        w.window_ns,
        count(*) AS intervals,
        sum(b.end_ns - b.start_ns)::BIGINT AS between_ns,
        median(b.end_ns - b.start_ns) AS median_ns
    FROM _engine_between AS b
    JOIN _engine_windows AS w USING (report_id)
    GROUP BY w.report_id, w.device, w.rate, w.window_ns
)
SELECT
    s.report_id,
    s.device,
    s.rate,
    s.intervals,
    s.between_ns - coalesce(f.time_ns, 0) AS between_ns,
    s.median_ns,
    c.code,
    c.code_pct,
    100.0 * (s.between_ns - coalesce(f.time_ns, 0)) / s.window_ns AS share_pct,
    100.0 * (s.between_ns - coalesce(f.time_ns, 0)) / s.window_ns AS gain_pct
FROM sums AS s
LEFT JOIN flushed AS f USING (report_id)
LEFT JOIN _engine_code AS c USING (report_id)
WHERE 100.0 * (s.between_ns - coalesce(f.time_ns, 0)) / s.window_ns >= threshold('timeline.contributor_pct')
    AND s.intervals >= threshold('timeline.loop_repeats')
ORDER BY s.report_id, s.device;
