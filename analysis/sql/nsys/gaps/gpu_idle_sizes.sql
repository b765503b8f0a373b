-- Idle time of each GPU by interval length and cause. The view shows whether a few long intervals or many
-- short intervals dominate.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- size_index INTEGER: index of the length class; 1 is the shortest
-- size VARCHAR: length class, from 'under 10 us' to '10 ms and more'
-- cause VARCHAR: cause that accounts for the largest part of the interval, as a category of gpu_time_budget
-- count BIGINT: number of intervals
-- time_ns BIGINT: total idle time, ns
-- share_pct DOUBLE: percentage of the duration of the steady steps (analysis_windows)
CREATE VIEW gpu_idle_sizes AS
WITH sized AS (
    SELECT
        track,
        cause,
        dur_ns,
        1
            + (dur_ns >= 1e4)::INTEGER
            + (dur_ns >= 1e5)::INTEGER
            + (dur_ns >= 1e6)::INTEGER
            + (dur_ns >= 1e7)::INTEGER AS size_index
    FROM _gaps
    SEMI JOIN _analysed USING (track, window_id)
)
SELECT
    g.report_id,
    g.device,
    s.size_index,
    ['under 10 us', '10 to 100 us', '0.1 to 1 ms', '1 to 10 ms', '10 ms and more'][s.size_index] AS size,
    s.cause,
    count(*) AS count,
    sum(s.dur_ns)::BIGINT AS time_ns,
    100.0 * sum(s.dur_ns) / nullif(any_value(p.time_ns), 0) AS share_pct
FROM sized AS s
JOIN _gpus AS g USING (track)
JOIN analysis_windows AS p
    ON p.report_id = g.report_id AND p.device IS NOT DISTINCT FROM g.device
GROUP BY g.report_id, g.device, s.size_index, s.cause
ORDER BY g.report_id, g.device, s.size_index, time_ns DESC, s.cause;
