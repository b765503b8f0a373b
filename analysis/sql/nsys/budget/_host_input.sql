-- Whether most of the time in which the host launches nothing goes to input data, or to starting processes.
CREATE VIEW _host_input AS
WITH host AS (
    -- Input data: ranges and OS calls that say so, or nothing but such copies time and again, for which
    -- the host may wait for another thread.
    SELECT
        c.track,
        sum(c.dur_ns) AS ns,
        sum(c.dur_ns) FILTER (
            is_input(n.range_name) OR is_reading(CASE WHEN 2 * n.os_ns >= n.dur_ns THEN n.os_name END)
            OR (n.other_kind = 'range' AND is_input(n.other_name))
            OR (n.other_kind = 'os' AND is_reading(n.other_name))
        ) AS input_ns,
        sum(c.dur_ns) FILTER (s.op_id IS NOT NULL) AS starting_ns,
        sum(c.dur_ns) FILTER (i.op_id IS NOT NULL) AS copied_ns,
        count(i.op_id) AS copies
    FROM _gap_causes AS c
    JOIN _gap_names AS n USING (track, op_id)
    JOIN _gpus AS t USING (track)
    LEFT JOIN _starting_gaps AS s USING (track, op_id)
    LEFT JOIN _input_copies AS i
        ON i.report_id = t.report_id AND i.op_id = c.op_id
            AND (c.kind = 'next operation' OR (c.kind = 'OS call' AND is_waiting(c.name)))
    WHERE c.cause = 'host'
    GROUP BY c.track
)
SELECT t.report_id, t.device,
    coalesce(2 * starting_ns >= ns, false) AS starts,
    2 * input_ns >= ns
    OR (copies >= threshold('timeline.recurring_gaps') AND 2 * copied_ns >= ns) AS is_data
FROM host
JOIN _gpus AS t USING (track);
