-- Time of each thread in calls that wait for the GPU or load code, as intervals that do not overlap, with the
-- total time of each kind in earlier intervals.
-- @materialize
CREATE VIEW _blocking_calls AS
WITH names AS (
    SELECT name, is_loading(name) AS loads
    FROM _names
    WHERE kind = 'api' AND (is_synchronising(name) OR is_loading(name))
),
calls AS (
    SELECT c.report_id, c.pid, c.tid, c.start_ns, c.end_ns, c.name, n.loads
    FROM nsys_api_calls AS c
    JOIN names AS n ON n.name = c.name
),
apart AS (
    SELECT * REPLACE (greatest(start_ns, max(end_ns) OVER earlier) AS start_ns)
    FROM calls
    WHERE end_ns > start_ns
    WINDOW earlier AS (
        PARTITION BY report_id, pid, tid
        ORDER BY start_ns, end_ns, name
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
    QUALIFY coalesce(end_ns > max(end_ns) OVER earlier, true)
)
SELECT
    *,
    (sum(CASE WHEN loads THEN 0 ELSE end_ns - start_ns END) OVER so_far)::BIGINT AS waited_until,
    (sum(CASE WHEN loads THEN end_ns - start_ns ELSE 0 END) OVER so_far)::BIGINT AS loaded_until
FROM apart
WINDOW so_far AS (PARTITION BY report_id, pid, tid ORDER BY start_ns, end_ns);
