-- Iterations of an engine whose ranges do not show them: the steps of the loop that perfpipe finds, and the
-- work between steps, which a copy to the host ends, because an engine reads each iteration's tokens. Steps
-- with many such copies are batches of iterations, and are not used.
-- @materialize
CREATE VIEW _engine_pieces AS
WITH captures AS (
    FROM _served_captures ANTI JOIN _engine_ranges USING (report_id)
),
every_step AS (
    SELECT c.report_id, s.track, s.source, s.name, s.host_start_ns, s.host_end_ns, s.first_ns,
        s.end_ns AS until_ns,
        row_number() OVER (PARTITION BY c.report_id ORDER BY s.first_ns, s.host_start_ns) AS step
    FROM _process_steps AS s
    JOIN captures AS c ON c.track = s.track AND c.pid = s.pid
    WHERE s.main
),
ops AS (
    SELECT
        c.report_id, o.track, o.op_id, o.start_ns, o.end_ns, o.api_start_ns,
        n.name LIKE '%Device-to-Host%' AS reads
    FROM _ops AS o
    JOIN captures AS c ON c.track = o.track AND c.pid = o.pid
    JOIN _names AS n ON n.kind = 'operation' AND n.number = o.name_number
),
steps AS (
    FROM every_step
    SEMI JOIN (
        SELECT s.report_id
        FROM (SELECT report_id, count(*) AS steps FROM every_step GROUP BY report_id) AS s
        JOIN (SELECT report_id, count_if(reads) AS reads FROM ops GROUP BY report_id) AS o USING (report_id)
        WHERE o.reads <= threshold('serving.readbacks') * s.steps
    ) USING (report_id)
),
placed AS (
    SELECT o.*, s.source, s.name, s.host_start_ns,
        if(o.start_ns < s.until_ns AND coalesce(o.api_start_ns < s.host_end_ns, true), s.step, NULL) AS step
    FROM ops AS o
    ASOF LEFT JOIN steps AS s ON s.report_id = o.report_id AND s.first_ns <= o.start_ns
),
marked AS (
    SELECT
        *,
        coalesce(
            lag(step) OVER w IS DISTINCT FROM step OR (step IS NULL AND lag(reads) OVER w), true
        ) AS begins
    FROM placed
    WINDOW w AS (PARTITION BY report_id ORDER BY start_ns, end_ns, op_id)
),
numbered AS (
    SELECT *, sum(begins::INTEGER) OVER (
        PARTITION BY report_id ORDER BY start_ns, end_ns, op_id ROWS UNBOUNDED PRECEDING
    ) AS piece
    FROM marked
)
SELECT
    report_id,
    track,
    if(any_value(step) IS NULL, 'readback', any_value(source)) AS source,
    if(any_value(step) IS NULL, NULL, any_value(name)) AS name,
    least(min(coalesce(api_start_ns, start_ns)), any_value(host_start_ns) FILTER (step IS NOT NULL))
        AS host_start_ns,
    min(start_ns) AS first_ns,
    max(end_ns) AS gpu_end_ns
FROM numbered
GROUP BY report_id, track, piece;
