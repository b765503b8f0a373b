-- Idle time of each category of timeline_bottleneck by line of the program, most time first, with its share
-- of this time and the 95 % confidence interval of the share, %. Traced stacks have no interval.
-- @materialize
CREATE VIEW _bound_lines AS
WITH causes AS (
    SELECT *, timeline_bound(cause) AS bound
    FROM idle_code
    UNION ALL
    -- A copy back to the host is not what a program waits for that only synchronizes.
    SELECT *, 'readback'
    FROM idle_code
    WHERE cause = 'sync' AND NOT coalesce(starts_with(library_function, 'synchronize '), false)
),
lines AS (
    SELECT
        report_id, device, bound, function, file, line, via, kind, reason,
        sum(self_ns)::BIGINT AS ns, sum(samples)::BIGINT AS samples,
        arg_max_null(library_function, (self_ns, cause)) AS called,
        bool_or(low_pct IS NOT NULL) AS is_estimate
    FROM causes
    WHERE level = 'user' AND self_ns > 0
    GROUP BY ALL
),
shared AS (
    SELECT
        *,
        sum(ns) OVER bound AS all_ns,
        sum(samples) OVER bound AS all_samples,
        CASE WHEN is_estimate THEN share_interval(ns / all_ns, all_samples) END AS pct,
        row_number() OVER (
            PARTITION BY report_id, device, bound
            ORDER BY function IS NULL, ns DESC, file, line, function, via, reason
        ) AS place
    FROM lines
    WINDOW bound AS (PARTITION BY report_id, device, bound)
)
SELECT
    report_id, device, bound, place, function, file, line, kind, via, called, reason, ns, samples,
    100.0 * ns / all_ns AS share_pct, pct
FROM shared;
