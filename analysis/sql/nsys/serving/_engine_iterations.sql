-- Iterations of the engine within the captured window, numbered. An engine that launches the next iteration
-- while the GPU computes the last one has iterations that overlap: each begins where the previous one ended,
-- at `previous_ns`, or later.
-- @materialize
CREATE VIEW _engine_iterations AS
WITH found AS (
    SELECT report_id, track, 'name' AS source, name, said, host_start_ns, first_ns, gpu_end_ns,
        greatest(gpu_end_ns, if(host_end_ns = 9223372036854775807, NULL, host_end_ns)) AS until_ns
    FROM _engine_ranges
    UNION ALL BY NAME
    SELECT report_id, track, source, name, engine_iteration(NULL) AS said, host_start_ns, first_ns,
        gpu_end_ns, gpu_end_ns AS until_ns
    FROM _engine_pieces
),
ordered AS (
    SELECT
        f.*,
        max(until_ns) OVER (
            PARTITION BY report_id ORDER BY first_ns, host_start_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM found AS f
),
placed AS (
    SELECT
        o.* EXCLUDE (until_ns, reached_ns),
        greatest(least(o.host_start_ns, o.first_ns), coalesce(o.reached_ns, o.host_start_ns)) AS start_ns,
        greatest(o.until_ns, start_ns) AS end_ns
    FROM ordered AS o
)
SELECT
    p.*,
    c.requests_report_id,
    c.load_id,
    row_number() OVER numbered AS iteration,
    lag(p.end_ns) OVER numbered AS previous_ns
FROM placed AS p
JOIN _served_captures AS c USING (report_id)
WHERE p.start_ns >= c.start_ns AND p.end_ns <= c.end_ns AND p.end_ns > p.start_ns
WINDOW numbered AS (PARTITION BY p.report_id ORDER BY p.start_ns, p.end_ns, p.first_ns);
