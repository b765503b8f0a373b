-- Sends and receives with a number that both ends share.  If both dumps are complete, it is that of the call
-- between the two ranks; else unfinished calls are numbered, because older ones were overwritten.
-- @materialize
CREATE VIEW _hang_ends AS
WITH ends AS (
    SELECT
        c.report_id,
        c.rank,
        c.group_id,
        c.source,
        c.target,
        c.sequence,
        agreed_operands(
            c.operation, c.input_elements, c.output_elements, c.input_types, c.output_types
        ) AS said,
        u.finished,
        coalesce(s.first_record = 0 AND t.first_record = 0, false) AS complete,
        row_number() OVER every AS nth,
        count(if(NOT u.finished, 1, NULL)) OVER every AS nth_unfinished
    FROM hang_calls AS c
    JOIN _hang_units AS u
        ON u.report_id = c.report_id AND u.rank = c.rank AND u.group_id = c.group_id AND u.p2p = c.p2p
            AND u.sequence = c.sequence
    LEFT JOIN hang_dumps AS s ON s.report_id = c.report_id AND s.rank = c.source
    LEFT JOIN hang_dumps AS t ON t.report_id = c.report_id AND t.rank = c.target
    WHERE c.source IS NOT NULL
    WINDOW every AS (
        PARTITION BY c.report_id, c.rank, c.group_id, c.source, c.target ORDER BY c.record_id
    )
)
SELECT
    * EXCLUDE (complete, nth, nth_unfinished),
    CASE WHEN complete THEN nth ELSE nth_unfinished END AS number
FROM ends
WHERE complete OR NOT finished;
