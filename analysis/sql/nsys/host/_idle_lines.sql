-- The line, or the two lines, of the program with most of the idle time of each category of
-- timeline_bottleneck, in words. Two lines are given if neither has most of the time, if sampling cannot tell
-- which has more, or if they are in one function.
-- @materialize
CREATE VIEW _idle_lines AS
WITH worded AS (
    SELECT
        *,
        concat(
            short_source(file), ':' || line, ' ' || nullif(function, '<module>'),
            if(via IS NULL, NULL, ' of a worker process'),
            ', which calls ' || called
        ) AS text
    FROM _bound_lines
    WHERE function IS NOT NULL AND place <= 2
),
paired AS (
    SELECT
        report_id, device, bound,
        max_by(share_pct, -place) AS share_pct,
        max_by(text, -place) AS text,
        max(share_pct) FILTER (place = 2) AS next_pct,
        max_by(text, place) FILTER (place = 2) AS next_text,
        coalesce(max(pct[2]) FILTER (place = 2) >= min(pct[1]) FILTER (place = 1), false) AS alike,
        count(*) = 2 AND count(DISTINCT (function, file)) = 1 AS in_one
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
            CASE bound
                WHEN 'readback' THEN 'the idle time after such waits'
                WHEN 'launch_overhead' THEN 'the launch overhead'
                ELSE 'this idle time'
            END,
            text
        ),
        CASE
            WHEN (alike OR in_one OR share_pct < 50) AND next_pct >= threshold('timeline.named_line_pct')
                THEN printf('; %s%.0f %% in %s', if(alike, 'about ', ''), next_pct, next_text)
        END
    ) AS words
FROM paired
WHERE share_pct >= threshold('timeline.named_line_pct');
