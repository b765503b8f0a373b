-- Servers whose engine waits between iterations until files are on disk (fsync and similar calls), as
-- synchronous logging does.
--
-- report_id VARCHAR: report of the timeline
-- device BIGINT: physical GPU number
-- rate DOUBLE: arrival rate of the load, requests/s
-- calls BIGINT: number of these calls
-- flush_ns BIGINT: their time between iterations, ns
-- name VARCHAR: function with the most of this time
-- share_pct DOUBLE: flush_ns, % of the captured window
-- gain_pct DOUBLE: upper bound on the gain, % of the captured window: share_pct
/* finding
claim = "engine_flushes"
says = "waits between iterations of the server's engine until files are on disk ({{ name }})"
evidence = """\
{% if rate %}at {{ rate | request_rate }}, {% endif %}{{ calls | counted('call') }} on the \
engine's thread take {{ flush_ns | ns }} between iterations, {{ share }}"""
question = "SELECT rate, name, calls, flush_ns, share_pct FROM engine_flush_findings"
part = "window"

[columns]
time_ns = "flush_ns"
launches = "calls"

[assumes]
no_flush = "files are written by another thread"

[techniques.asynchronous_logging]
technique = "Write logs and files from another thread, without flushing them in the engine's loop"
detail = """\
A call that waits for the disk holds up every request in progress. Hand log records to a queue that another \
thread writes (logging.handlers.QueueHandler in Python), log per request rather than per token, and flush \
only where records must survive a crash."""
check_first = "Which code calls fsync or fdatasync: stacks of the engine's thread show it."
difficulty = "low"
link = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"
*/
CREATE VIEW engine_flush_findings AS
WITH names AS (
    SELECT report_id, name, count(*) AS calls, sum(time_ns)::BIGINT AS time_ns
    FROM _engine_flushes
    GROUP BY report_id, name
),
sums AS (
    SELECT report_id, sum(calls)::BIGINT AS calls, sum(time_ns)::BIGINT AS flush_ns,
        arg_max(name, (time_ns, name)) AS name
    FROM names
    GROUP BY report_id
)
SELECT
    w.report_id,
    w.device,
    w.rate,
    s.calls,
    s.flush_ns,
    s.name,
    100.0 * s.flush_ns / w.window_ns AS share_pct,
    100.0 * s.flush_ns / w.window_ns AS gain_pct
FROM _engine_windows AS w
JOIN sums AS s USING (report_id)
WHERE 100.0 * s.flush_ns / w.window_ns >= threshold('serving.flush_pct')
    AND s.calls >= threshold('timeline.loop_repeats')
ORDER BY w.report_id, w.device;
