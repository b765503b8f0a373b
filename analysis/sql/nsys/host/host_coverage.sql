-- Threads with stacks over time: how often they were recorded, and how much of the analyzed windows and of
-- the GPU's idle time they cover. If a process was recorded in several ways, the way that says most counts.
-- Samples are regular, so the share of samples in idle time should be the share of idle time. If these shares
-- differ much, the sampler favors some code, or its clock differs from that of the GPU. There is one row for
-- each GPU on which the thread's process works; columns of the GPU repeat on its threads.
-- @materialize
--
-- report_id VARCHAR: report
-- pid BIGINT: process id
-- tid BIGINT: thread id
-- device BIGINT: physical GPU number; NULL if the process uses no GPU (a worker process)
-- source VARCHAR: origin of the stacks that count for this thread, as in host_samples
-- samples BIGINT: number of samples, or of intervals of traced stacks, in the whole capture
-- period_ns BIGINT: median time between two samples, ns; NULL for a single sample, for traced stacks, and for
--   those of py-spy, which merges equal samples
-- first_ns BIGINT: time of the first sample, ns
-- last_ns BIGINT: time of the last sample, ns
-- covered_pct DOUBLE: percentage of the analyzed windows that the samples stand for
-- idle_ns BIGINT: idle time of the GPU in the analyzed windows, ns
-- not_sampled_ns BIGINT: idle time that the host caused and that no sample of any thread stands for, ns
-- host_caused_ns BIGINT: idle time that the host caused, ns
-- window_samples BIGINT: number of samples in the analyzed windows
-- idle_samples BIGINT: number of these samples during idle time of the GPU
-- sampled_pct DOUBLE: idle_samples as a percentage of window_samples; NULL for traced stacks
-- idle_pct DOUBLE: percentage of idle time in the analyzed windows between the first and the last sample
-- is_biased BOOLEAN: whether sampled_pct differs from idle_pct by more than 5 points, and by more than chance
--   explains (95 % confidence)
CREATE VIEW host_coverage AS
WITH cells AS (
    SELECT
        *,
        is_traced(source) AS traced,
        time_ns - lag(time_ns) OVER (PARTITION BY report_id, pid, tid ORDER BY time_ns) AS since_ns
    FROM _host_cells
),
threads AS (
    SELECT
        report_id, pid, tid, source, traced, count(*) AS samples,
        median(since_ns) FILTER (NOT traced AND source != 'py-spy')::BIGINT AS period_ns,
        min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM cells
    GROUP BY ALL
),
placed AS (
    SELECT h.*, t.track, t.device
    FROM threads AS h
    LEFT JOIN (SELECT DISTINCT report_id, pid, track, device FROM _tracks) AS t
        ON t.report_id = h.report_id AND coalesce(t.pid = h.pid, true)
),
spans AS (
    SELECT DISTINCT track, start_ns, end_ns FROM _analysed_spans
),
-- What a thread saw of the analyzed windows.
seen AS (
    SELECT
        p.report_id, p.pid, p.tid, p.source, p.track, s.start_ns, s.end_ns,
        greatest(s.start_ns, p.first_ns) AS from_ns, least(s.end_ns, p.last_ns + 1) AS until_ns
    FROM placed AS p
    JOIN spans AS s USING (track)
),
windows AS (
    SELECT
        report_id, pid, tid, source, track, sum(end_ns - start_ns) AS time_ns,
        sum(greatest(until_ns - from_ns, 0)) AS seen_ns
    FROM seen
    GROUP BY ALL
),
covered AS (
    SELECT
        s.report_id, s.pid, s.tid, s.source, s.track,
        sum(greatest(least(c.end_ns, s.end_ns) - greatest(c.start_ns, s.start_ns), 0)) AS ns,
        count_if(c.time_ns >= s.start_ns AND c.time_ns < s.end_ns)::BIGINT AS samples
    FROM seen AS s
    JOIN cells AS c
        ON c.report_id = s.report_id AND c.pid = s.pid AND c.tid = s.tid AND c.source = s.source
            AND c.start_ns < s.end_ns AND c.end_ns > s.start_ns
    GROUP BY ALL
),
gaps AS (
    SELECT g.track, greatest(g.start_ns, s.start_ns) AS start_ns, least(g.end_ns, s.end_ns) AS end_ns
    FROM (FROM _gaps SEMI JOIN _analysed USING (track, window_id)) AS g
    JOIN spans AS s ON s.track = g.track AND s.start_ns < g.end_ns AND s.end_ns > g.start_ns
),
idle AS (
    SELECT
        s.report_id, s.pid, s.tid, s.source, s.track,
        sum(least(g.end_ns, s.until_ns) - greatest(g.start_ns, s.from_ns)) AS ns
    FROM seen AS s
    JOIN gaps AS g ON g.track = s.track AND g.start_ns < s.until_ns AND g.end_ns > s.from_ns
    GROUP BY ALL
),
hits AS (
    SELECT p.report_id, p.pid, p.tid, p.source, p.track, count(*) AS samples
    FROM (
        SELECT c.report_id, c.pid, c.tid, c.source, c.time_ns, p.track
        FROM cells AS c
        JOIN placed AS p USING (report_id, pid, tid, source)
    ) AS p
    ASOF JOIN gaps AS g ON g.track = p.track AND g.start_ns <= p.time_ns
    WHERE p.time_ns < g.end_ns
    GROUP BY ALL
),
gpus AS (
    SELECT
        g.track, sum(w.ns)::BIGINT AS idle_ns,
        coalesce(sum(w.ns) FILTER (w.reason = 'not sampled'), 0)::BIGINT AS not_sampled_ns,
        coalesce(sum(w.ns) FILTER (is_host_cause(w.cause)), 0)::BIGINT AS host_caused_ns
    FROM _idle_whole AS w
    JOIN _gpus AS g ON g.report_id = w.report_id AND g.device IS NOT DISTINCT FROM w.device
    GROUP BY g.track
)
SELECT
    p.report_id,
    p.pid,
    p.tid,
    p.device,
    p.source,
    p.samples,
    p.period_ns,
    p.first_ns,
    p.last_ns,
    if(w.time_ns > 0, least(100.0 * coalesce(c.ns, 0) / w.time_ns, 100), NULL) AS covered_pct,
    g.idle_ns,
    g.not_sampled_ns,
    g.host_caused_ns,
    if(w.time_ns > 0, coalesce(c.samples, 0), NULL) AS window_samples,
    if(w.time_ns > 0, coalesce(h.samples, 0), NULL) AS idle_samples,
    CASE WHEN NOT p.traced THEN 100.0 * coalesce(h.samples, 0) / nullif(c.samples, 0) END AS sampled_pct,
    100.0 * coalesce(i.ns, 0) / nullif(w.seen_ns, 0) AS idle_pct,
    coalesce(
        abs(sampled_pct - idle_pct) > threshold('timeline.sampler_points')
        AND NOT idle_pct BETWEEN share_interval(sampled_pct / 100, c.samples)[1]
            AND share_interval(sampled_pct / 100, c.samples)[2],
        false
    ) AS is_biased
FROM placed AS p
LEFT JOIN windows AS w USING (report_id, pid, tid, source, track)
LEFT JOIN covered AS c USING (report_id, pid, tid, source, track)
LEFT JOIN idle AS i USING (report_id, pid, tid, source, track)
LEFT JOIN hits AS h USING (report_id, pid, tid, source, track)
LEFT JOIN gpus AS g USING (track)
ORDER BY p.report_id, p.pid, p.samples DESC, p.tid, p.source, p.device;
