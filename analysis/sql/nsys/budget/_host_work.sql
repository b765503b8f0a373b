-- Time that the host needs to issue the work of the analyzed windows if the GPU never makes it wait: from the
-- first launching call of a process to the end of the last, minus the time that launching threads spend in
-- calls that wait or load code. There is a lower and an upper limit, because the GPU may have delayed a copy,
-- a long launching call, or a call after a long and possibly full queue. `waits` counts the calls and long
-- copies in which the host may have waited for the GPU. Without them the host runs ahead of the GPU.
CREATE VIEW _host_work AS
WITH calls AS (
    SELECT
        w.report_id,
        w.track,
        w.start_ns AS span_ns,
        l.pid,
        l.tid,
        l.api_start_ns,
        l.api_end_ns,
        l.kind = 'memcpy' AND l.graph_node_id IS NULL AS copies,
        -- All of a copy may be waiting, and all of a call that met a full queue.
        if(copies OR l.start_ns - l.api_end_ns > threshold('timeline.queued_ns'), 0,
            threshold('timeline.loading_ns'))::BIGINT AS own_ns
    FROM _analysed_spans AS w
    JOIN launches AS l
        ON l.report_id = w.report_id
        AND l.pid IS NOT DISTINCT FROM w.pid
        AND l.device IS NOT DISTINCT FROM w.cuda_device
        AND l.start_ns >= w.start_ns
        AND l.start_ns < w.end_ns
    WHERE l.api_end_ns IS NOT NULL
),
issued AS (
    SELECT
        report_id,
        track,
        span_ns,
        pid,
        list(DISTINCT tid) AS tids,
        min(api_start_ns) AS first_ns,
        max(api_end_ns) AS last_ns
    FROM calls
    GROUP BY report_id, track, span_ns, pid
),
blocked AS (
    SELECT
        i.track,
        i.span_ns,
        i.pid,
        b.start_ns,
        least(b.end_ns, i.last_ns) AS end_ns,
        -- Once among all calls that may delay the host, and once separately.
        unnest([true, false]) AS every,
        NOT b.loads AND b.end_ns - b.start_ns > threshold('timeline.named_call_ns') AS waited
    FROM issued AS i
    JOIN _blocking_calls AS b
        ON b.report_id = i.report_id
        AND b.pid = i.pid
        AND b.start_ns >= i.first_ns
        AND b.start_ns < i.last_ns
        AND list_contains(i.tids, b.tid)
    UNION ALL
    SELECT
        track,
        span_ns,
        pid,
        api_start_ns + own_ns,
        api_end_ns,
        true,
        copies AND api_end_ns - api_start_ns > threshold('timeline.loading_ns')
    FROM calls
    WHERE api_end_ns - api_start_ns > own_ns
),
apart AS (
    SELECT track, span_ns, pid, every, waited, beyond_ns(start_ns, end_ns, max(end_ns) OVER earlier) AS ns
    FROM blocked
    WINDOW earlier AS (
        PARTITION BY track, span_ns, pid, every
        ORDER BY start_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
sums AS (
    SELECT
        track,
        span_ns,
        pid,
        sum(ns) FILTER (every) AS any_ns,
        sum(ns) FILTER (NOT every) AS wait_ns,
        count(*) FILTER (every AND waited) AS waits
    FROM apart
    GROUP BY track, span_ns, pid
),
processes AS (
    SELECT
        i.report_id,
        i.track,
        sum(i.last_ns - i.first_ns - coalesce(s.any_ns, 0)) AS least_ns,
        sum(i.last_ns - i.first_ns - coalesce(s.wait_ns, 0)) AS most_ns,
        sum(coalesce(s.waits, 0)) AS waits
    FROM issued AS i
    LEFT JOIN sums AS s USING (track, span_ns, pid)
    GROUP BY i.report_id, i.track, i.pid
)
SELECT
    report_id,
    track,
    max(least_ns)::DOUBLE AS least_ns,
    max(most_ns)::DOUBLE AS most_ns,
    max(waits)::BIGINT AS waits
FROM processes
GROUP BY report_id, track;
