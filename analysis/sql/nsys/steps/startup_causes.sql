-- Host time from the process's first CUDA call to its first steady step, by cause. The remaining time is
-- the program's own work, such as imports, reading data or Python code. Only timelines with steps have
-- rows, and only processes that did not use CUDA before the capture began.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- process_id BIGINT: process id
-- cause VARCHAR: first uses of kernels (including loading their code), module loading, allocation of
--   device memory, context creation, communicator initialization, autotuning of kernels, compilation
--   (without autotuning), graph capture (and instantiation of CUDA graphs), other loops (without the time of
--   the other causes) or everything else
-- calls BIGINT: number of calls, ranges or iterations; NULL for everything else
-- time_ns BIGINT: host time of the cause, ns; overlapping time within the cause counts once
-- share_pct DOUBLE: time_ns as a percentage of startup_ns
-- startup_ns BIGINT: time from the first CUDA call to the first steady step, ns
CREATE VIEW startup_causes AS
WITH begun AS (
    SELECT w.track, w.pid, min(w.host_start_ns) AS until_ns
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
    JOIN _gpus AS g USING (track)
    ANTI JOIN _midway AS m ON m.report_id = g.report_id AND m.pid = w.pid
    WHERE p.phase = 'steady'
    GROUP BY w.track, w.pid
),
starts AS (
    SELECT b.track, g.report_id, g.device, b.pid, min(c.start_ns) AS from_ns, b.until_ns
    FROM begun AS b
    JOIN _gpus AS g USING (track)
    JOIN nsys_api_calls AS c ON c.report_id = g.report_id AND c.pid = b.pid AND c.start_ns < b.until_ns
    GROUP BY ALL
),
loops AS (
    SELECT
        report_id,
        pid,
        host_start_ns AS start_ns,
        coalesce(
            lead(host_start_ns) OVER (PARTITION BY track, pid, loop ORDER BY host_start_ns),
            host_start_ns + end_ns - start_ns
        ) AS end_ns
    FROM _process_steps
    WHERE NOT main
),
clipped AS (
    SELECT
        s.track,
        o.what,
        o.start_ns,
        least(o.end_ns, s.until_ns) AS end_ns,
        max(least(o.end_ns, s.until_ns)) OVER (
            PARTITION BY s.track, o.what
            ORDER BY o.start_ns, o.end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM starts AS s
    JOIN (
        FROM _occasional_calls
        UNION ALL
        -- Compilers tune during compilation: this time counts as tuning, and the rest as compilation.
        SELECT report_id, pid, start_ns, end_ns, 'compilation and autotuning'
        FROM _occasional_calls
        WHERE what IN ('compilation', 'autotuning of kernels')
        UNION ALL
        SELECT DISTINCT report_id, pid, start_ns, end_ns, 'other loops'
        FROM loops
    ) AS o
        ON o.report_id = s.report_id AND o.pid = s.pid AND o.start_ns >= s.from_ns AND o.start_ns < s.until_ns
),
-- Everything else is the time without a cause, so overlaps of causes count only once.
together AS (
    SELECT track, what, start_ns, end_ns, max(end_ns) OVER w AS reached,
        max(if(what = 'other loops', NULL, end_ns)) OVER w AS reached_by_causes
    FROM clipped
    WINDOW w AS (
        PARTITION BY track ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
sums AS (
    SELECT track, what AS cause, count(*) AS calls, sum(beyond_ns(start_ns, end_ns, reached)) AS time_ns
    FROM clipped
    WHERE what NOT IN ('compilation', 'compilation and autotuning', 'other loops')
    GROUP BY track, what
    UNION ALL
    SELECT
        track,
        'compilation',
        count(*) FILTER (what = 'compilation'),
        sum(beyond_ns(start_ns, end_ns, reached)) FILTER (what = 'compilation and autotuning')
        - coalesce(sum(beyond_ns(start_ns, end_ns, reached)) FILTER (what = 'autotuning of kernels'), 0)
    FROM clipped
    WHERE what IN ('compilation', 'autotuning of kernels', 'compilation and autotuning')
    GROUP BY track
    HAVING bool_or(what = 'compilation')
    UNION ALL
    -- Kernels are tuned and loaded in loops as well: only time without another cause counts as a loop.
    SELECT
        track,
        'other loops',
        count(*) FILTER (what = 'other loops'),
        sum(beyond_ns(start_ns, end_ns, reached))
        - coalesce(
            sum(beyond_ns(start_ns, end_ns, reached_by_causes)) FILTER (what != 'other loops'), 0
        )
    FROM together
    GROUP BY track
    HAVING bool_or(what = 'other loops')
    UNION ALL
    SELECT
        s.track,
        'everything else',
        NULL,
        s.until_ns - s.from_ns - coalesce((
            SELECT sum(beyond_ns(t.start_ns, t.end_ns, t.reached)) FROM together AS t WHERE t.track = s.track
        ), 0)
    FROM starts AS s
)
SELECT
    s.report_id,
    s.device,
    s.pid AS process_id,
    u.cause,
    u.calls,
    u.time_ns::BIGINT AS time_ns,
    100.0 * u.time_ns / nullif(s.until_ns - s.from_ns, 0) AS share_pct,
    s.until_ns - s.from_ns AS startup_ns
FROM sums AS u
JOIN starts AS s USING (track)
ORDER BY s.report_id, s.device, u.cause = 'everything else', u.time_ns DESC, u.cause;
