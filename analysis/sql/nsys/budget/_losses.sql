-- What the profiler says that it lost of each report, in its words, and whether that makes the trace
-- incomplete.
CREATE VIEW _losses AS
WITH said AS (
    SELECT report_id, text
    FROM nsys_diagnostics
    WHERE severity IN ('Warning', 'Error')
        AND (
            regexp_matches(text, 'lost|dropped|not all|incomplete', 'i')
            OR (text LIKE '%ProcessEventsError%' AND report_id IN (
                SELECT report_id
                FROM _unprocessed
                WHERE coalesce(missing_pct >= threshold('timeline.unprocessed_pct'), true)
            ))
        )
    UNION ALL
    SELECT report_id, printf('%.1f %% of the rows of a table in the file are lost or damaged', lost_pct)
    FROM reports
    WHERE lost_pct > threshold('timeline.lost_pct')
)
SELECT
    report_id,
    list(
        DISTINCT rtrim(trim(split_part(text, ':', 1)), '.')
        ORDER BY rtrim(trim(split_part(text, ':', 1)), '.')
    ) AS texts,
    bool_or(regexp_matches(text, 'lost|dropped|incomplete|ProcessEventsError', 'i')) AS incomplete
FROM said
GROUP BY report_id;
