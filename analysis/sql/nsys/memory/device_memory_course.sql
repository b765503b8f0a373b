-- Memory use of each GPU over time, divided into 240 intervals of equal length: total memory in use,
-- reserved memory, and memory of each kind.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- kind VARCHAR: memory that the row describes: in use, held (reserved), or one of the kinds in
--   device_memory
-- start_ns BIGINT: start of the first interval, ns: the first change after time 0; for nsys, the start of the
--   first GPU operation if this start is earlier
-- end_ns BIGINT: end of the last interval, ns: the last change or the end of the last GPU operation,
--   whichever is later
-- max_bytes BIGINT: peak memory use, bytes
-- course VARCHAR: memory use as a text bar chart, in eighths of max_bytes; each character covers six
--   intervals
-- parts_bytes BIGINT[]: peak memory use within each interval, bytes
CREATE VIEW device_memory_course AS
WITH moments AS (
    SELECT report_id, device, 'in use' AS kind, time_ns, any_value(total_bytes) AS bytes
    FROM device_memory
    GROUP BY ALL
    UNION ALL
    SELECT report_id, device, 'held', time_ns, any_value(reserved_bytes)
    FROM device_memory
    WHERE reserved_bytes IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT
        report_id, device, kind, time_ns,
        (sum(sum(delta)) OVER (PARTITION BY report_id, device, kind ORDER BY time_ns))::BIGINT
    FROM _memory_changes
    GROUP BY report_id, device, kind, time_ns
),
spans AS (
    SELECT
        m.report_id,
        m.device,
        -- PyTorch's memory before its first recorded event is unknown.
        if(
            bool_or(m.kind = 'tensor'),
            min(m.time_ns),
            least(min(m.time_ns) FILTER (m.time_ns > 0), any_value(s.start_ns))
        ) AS start_ns,
        greatest(max(m.time_ns), any_value(s.end_ns)) + 1 AS end_ns
    FROM moments AS m
    LEFT JOIN _gpus AS g ON g.report_id = m.report_id AND g.device = m.device
    LEFT JOIN _spans AS s USING (track)
    GROUP BY m.report_id, m.device
),
placed AS (
    SELECT
        m.*, s.start_ns, s.end_ns,
        -- Memory from before the first part exists when it begins.
        greatest(0, (m.time_ns - s.start_ns) * 240 // (s.end_ns - s.start_ns))::BIGINT AS part
    FROM moments AS m
    JOIN spans AS s ON s.report_id = m.report_id AND s.device IS NOT DISTINCT FROM m.device
),
highest AS (
    SELECT
        report_id, device, kind, start_ns, end_ns, part,
        max(bytes) FILTER (time_ns >= start_ns) AS most,
        arg_max(bytes, time_ns) FILTER (time_ns < start_ns) AS before,
        arg_max(bytes, time_ns) AS last
    FROM placed
    GROUP BY ALL
),
-- Memory at the end of a part exists at the start of the next, up to the next change.
parts AS (
    SELECT
        *,
        coalesce(before, lag(last) OVER course, 0) AS first,
        coalesce(lead(part) OVER course, 240) - part - 1 AS still
    FROM highest
    WINDOW course AS (PARTITION BY report_id, device, kind ORDER BY part)
),
joined AS (
    SELECT
        report_id,
        device,
        kind,
        start_ns,
        end_ns,
        greatest(max(most), max(first), max(last)) AS max_bytes,
        list_concat(
            list_resize([]::BIGINT[], min(part), 0),
            flatten(
                list(
                    list_concat([greatest(most, first)], list_resize([]::BIGINT[], still, last))
                    ORDER BY part
                )
            )
        ) AS parts_bytes
    FROM parts
    GROUP BY report_id, device, kind, start_ns, end_ns
)
SELECT
    report_id,
    device,
    kind,
    start_ns,
    end_ns,
    max_bytes,
    array_to_string(
        list_transform(
            range(0, 240, 6),
            lambda part: substr(
                '▁▂▃▄▅▆▇█',
                least(list_max(parts_bytes[part + 1:part + 6]) * 8 // greatest(max_bytes, 1), 7) + 1,
                1
            )
        ),
        ''
    ) AS course,
    parts_bytes
FROM joined
ORDER BY report_id, device, kind NOT IN ('in use', 'held'), kind;
