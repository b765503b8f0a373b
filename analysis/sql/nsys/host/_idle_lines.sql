-- The line, or the two lines, of the program with most of the idle time of each category of
-- timeline_bottleneck, in words. Two lines are given if neither has most of the time, or if sampling cannot
-- tell which has more. For readback, these are the lines that wait for the GPU.
-- @materialize
CREATE VIEW _idle_lines AS
WITH lines AS (
    SELECT
        report_id, device, timeline_bound(cause) AS bound, function, file, line, via, kind,
        sum(self_ns) AS ns, sum(samples) AS samples, max_by(library_function, self_ns) AS called
    FROM idle_code
    WHERE level = 'user' AND self_ns > 0
    GROUP BY ALL
),
shared AS (
    SELECT
        *,
        sum(ns) OVER bound AS all_ns,
        sum(samples) OVER bound AS all_samples,
        share_interval(ns / all_ns, all_samples) AS pct,
        row_number() OVER (
            PARTITION BY report_id, device, bound ORDER BY function IS NULL, ns DESC, file, line, via
        ) AS place
    FROM lines
    WINDOW bound AS (PARTITION BY report_id, device, bound)
),
worded AS (
    SELECT
        *,
        100.0 * ns / all_ns AS share_pct,
        concat(
            short_source(file), ':' || line, ' ' || nullif(function, '<module>'),
            if(via IS NULL, NULL, ' of a worker process'),
            ', which calls ' || called
        ) AS text
    FROM shared
    WHERE function IS NOT NULL AND place <= 2
),
paired AS (
    SELECT
        report_id, device, bound,
        max_by(share_pct, -place) AS share_pct,
        max_by(text, -place) AS text,
        max(share_pct) FILTER (place = 2) AS next_pct,
        max_by(text, place) FILTER (place = 2) AS next_text,
        coalesce(max(pct[2]) FILTER (place = 2) >= min(pct[1]) FILTER (place = 1), false) AS alike
    FROM worded
    GROUP BY ALL
)
SELECT
    report_id,
    device,
    bound,
    share_pct,
    concat(
        printf(
            '%s%.0f %% of %s is in %s',
            if(alike, 'about ', ''),
            share_pct,
            if(bound = 'readback', 'the idle time after waits', 'this idle time'),
            text
        ),
        CASE
            WHEN (alike OR share_pct < 50) AND next_pct >= threshold('timeline.named_line_pct')
                THEN printf('; %s%.0f %% in %s', if(alike, 'about ', ''), next_pct, next_text)
        END
    ) AS words
FROM (
    FROM paired
    UNION ALL BY NAME
    SELECT * REPLACE ('readback' AS bound) FROM paired WHERE bound = 'sync'
)
WHERE share_pct >= threshold('timeline.named_line_pct');
