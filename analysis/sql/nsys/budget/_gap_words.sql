-- What idle time of each category of timeline_bottleneck lies in, and its longest interval, in words.
-- @materialize
CREATE VIEW _gap_words AS
WITH longest AS (
    SELECT track, timeline_bound(cause) AS bound, arg_max(op_id, (dur_ns, -start_ns)) AS op_id
    FROM _gaps
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY ALL
),
worded AS (
    SELECT
        t.report_id,
        t.device,
        l.bound,
        concat(
            if(g.dur_ns < 1e6, printf('%.1f us', g.dur_ns / 1e3), printf('%.1f ms', g.dur_ns / 1e6)),
            ' before ',
            o.name,
            ' in ' || o.nvtx_range,
            ', after ' || g.sync_name
        ) AS text
    FROM longest AS l
    JOIN _gaps AS g USING (track, op_id)
    JOIN _gpus AS t USING (track)
    JOIN launches AS o ON o.report_id = t.report_id AND o.op_id = g.op_id
),
named AS (
    SELECT
        report_id,
        device,
        timeline_bound(cause) AS bound,
        kind,
        name,
        sum(count) AS count,
        sum(time_ns) AS time_ns,
        100.0 * sum(time_ns) / sum(sum(time_ns)) OVER (PARTITION BY report_id, device, timeline_bound(cause))
            AS part_pct
    FROM idle_causes
    GROUP BY report_id, device, timeline_bound(cause), kind, name
),
most AS (
    SELECT *
    FROM named
    WHERE kind IS NOT NULL AND part_pct >= threshold('timeline.named_pct')
    QUALIFY row_number() OVER (PARTITION BY report_id, device, bound ORDER BY time_ns DESC, kind, name) = 1
)
SELECT
    w.report_id,
    w.device,
    w.bound,
    w.text AS largest_gap,
    printf('%.0f %% of that idle time lies ', m.part_pct)
    || CASE m.kind
        WHEN 'range' THEN concat('inside `', m.name, '`')
        WHEN 'range of another thread' THEN concat('where another thread is inside `', m.name, '`')
        WHEN 'OS call of another thread' THEN concat('where another thread is in ', m.name)
        WHEN 'next operation' THEN concat('before ', m.name)
        ELSE concat('in ', m.name)
    END
    || CASE WHEN m.count > 1 THEN printf(' (%d intervals)', m.count::BIGINT) ELSE '' END AS idle_in
FROM worded AS w
LEFT JOIN most AS m USING (report_id, device, bound);
