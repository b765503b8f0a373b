-- GPUs whose analyzed window holds at most one iteration, of which at least half is start-up: initialization
-- of CUDA and its libraries, module loading, first uses of kernels, allocation, compilation, graph capture.
-- Processes that are known to have run before the capture began have no rows, nor have benchmarks and GPUs
-- that mostly work.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- cold_ns BIGINT: time in start-up within the window, ns; overlapping time counts once
-- window_ns BIGINT: length of the window, ns
-- share_pct DOUBLE: cold_ns as a percentage of the window
-- causes VARCHAR: the three longest kinds of start-up, as text
/* finding
claim = "cold_start"
says = "was captured only during start-up or a cold first iteration"
evidence = "start-up takes {{ cold_ns | ns }}, {{ share }}: {{ causes }}"
question = "SELECT cold_ns, window_ns, share_pct, causes FROM cold_start_findings"
category = "loading"

[columns]
time_ns = "cold_ns"

[techniques.capture_warm]
technique = "Capture steps after warm-up"
detail = """\
What the GPU waits for here happens once in a process, so it says nothing about the time of later steps. Run \
several steps, and let the capture contain more of them: perfpipe then leaves out the first ones. With \
torch.profiler, use schedule(wait=1, warmup=2, active=3). With nsys, begin the capture later (--delay, or \
--capture-range=cudaProfilerApi). If the steps have ranges, perfpipe report --step-range names them. If the \
start itself matters, keep processes alive, and load code ahead of time."""
check_first = "Whether the program repeats its work, and after how many steps their times settle."
difficulty = "low"
link = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"
*/
CREATE VIEW cold_start_findings AS
WITH cold AS (
    SELECT g.track, w.report_id, w.device, w.start_ns, w.end_ns, w.time_ns
    FROM analysis_windows AS w
    JOIN _gpus AS g ON g.report_id = w.report_id AND g.device IS NOT DISTINCT FROM w.device
    JOIN timeline_bottleneck AS b ON b.report_id = w.report_id AND b.device IS NOT DISTINCT FROM w.device
    ANTI JOIN benchmark_loops AS l ON l.report_id = w.report_id AND l.device = w.device
    WHERE w.kind IN ('whole', 'steady') AND coalesce(w.steps, 1) = 1 AND NOT is_work(b.bound)
),
processes AS (
    SELECT DISTINCT c.*, i.pid
    FROM cold AS c
    JOIN (SELECT DISTINCT track, report_id, pid FROM _idle) AS i USING (track, report_id)
    ANTI JOIN (FROM _midway WHERE known) AS m ON m.report_id = c.report_id AND m.pid = i.pid
),
names AS (
    SELECT name FROM _names WHERE kind = 'api' AND is_initializing(name)
),
-- Libraries initialize themselves with calls that may also create a context.
calls AS (
    SELECT report_id, pid, start_ns, end_ns,
        if(what = 'context creation', 'initialization', what) AS what
    FROM _occasional_calls
    WHERE what != 'first uses of kernels' OR end_ns - start_ns >= threshold('timeline.loading_ns')
    UNION ALL
    SELECT report_id, pid, start_ns, end_ns, 'initialization'
    FROM nsys_api_calls
    WHERE name IN (SELECT name FROM names)
),
clipped AS (
    SELECT p.track, c.what, greatest(c.start_ns, p.start_ns) AS start_ns, least(c.end_ns, p.end_ns) AS end_ns
    FROM calls AS c
    JOIN processes AS p USING (report_id, pid)
    WHERE c.start_ns < p.end_ns AND c.end_ns > p.start_ns
),
reached AS (
    SELECT *,
        max(end_ns) OVER (
            PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS until_ns,
        max(end_ns) OVER (
            PARTITION BY track, what ORDER BY start_ns, end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS own_until_ns
    FROM clipped
),
parts AS (
    SELECT
        track,
        what,
        sum(beyond_ns(start_ns, end_ns, until_ns)) AS added_ns,
        sum(beyond_ns(start_ns, end_ns, own_until_ns)) AS own_ns
    FROM reached
    GROUP BY track, what
),
sums AS (
    SELECT
        track,
        sum(added_ns)::BIGINT AS cold_ns,
        array_to_string(list_transform(
            list({what: what, ns: own_ns} ORDER BY own_ns DESC, what)[:3],
            lambda part: concat(part.what, if(
                part.ns < 1e9, printf(' %.3g ms', part.ns / 1e6), printf(' %.3g s', part.ns / 1e9)
            ))
        ), ', ') AS causes
    FROM parts
    GROUP BY track
)
SELECT c.report_id, c.device, s.cold_ns, c.time_ns AS window_ns,
    100.0 * s.cold_ns / c.time_ns AS share_pct, s.causes
FROM cold AS c
JOIN sums AS s USING (track)
WHERE 2 * s.cold_ns >= c.time_ns AND s.cold_ns >= threshold('timeline.startup_ns')
ORDER BY c.report_id, c.device;
