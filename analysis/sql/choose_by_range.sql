-- Windows of the ranges named $title (domain:name, or the name alone).  On each GPU, a window lasts from the
-- start of the first to the end of the last operation of the range, as in nvtx_tree: the operations that its
-- thread launched within the range, and those that other threads launched while its thread waited.  A range
-- that ends on another thread contains what its process launched while it was open.  At most $most windows.
INSERT INTO _chosen_windows
WITH RECURSIVE ranges AS MATERIALIZED (
    SELECT report_id, pid, range_id, name, start_ns, end_ns, first_call, calls
    FROM nsys_nvtx_ranges
    WHERE (name = $title OR nsys_range_name(domain, name) = $title) AND end_ns IS NOT NULL
    ORDER BY report_id, start_ns, range_id
    LIMIT $most
),
meanwhile AS MATERIALIZED (
    SELECT
        r.report_id, r.pid, r.range_id, r.name, l.range_id AS innermost, l.device, l.start_ns, l.end_ns,
        r.calls IS NULL OR l.call_id - r.first_call BETWEEN 0 AND r.calls - 1 AS own
    FROM ranges AS r
    JOIN launches AS l
        ON l.report_id = r.report_id AND l.pid = r.pid AND l.api_start_ns BETWEEN r.start_ns AND r.end_ns
),
-- The ranges around those of other threads, up to those of the threads that wait.
around AS (
    SELECT report_id, innermost, innermost AS range_id
    FROM meanwhile
    WHERE own IS NOT TRUE AND innermost IS NOT NULL
    UNION
    SELECT a.report_id, a.innermost, coalesce(r.enclosing, r.caller)
    FROM around AS a
    JOIN nsys_nvtx_ranges AS r ON r.report_id = a.report_id AND r.range_id = a.range_id
    WHERE coalesce(r.enclosing, r.caller) IS NOT NULL
),
launched AS (
    SELECT t.track, m.report_id, m.range_id, m.name, min(m.start_ns) AS start_ns, max(m.end_ns) AS end_ns
    FROM meanwhile AS m
    LEFT JOIN around AS a USING (report_id, innermost, range_id)
    JOIN _tracks AS t ON t.report_id = m.report_id AND t.pid = m.pid AND t.cuda_device = m.device
    WHERE m.own OR a.range_id IS NOT NULL
    GROUP BY t.track, m.report_id, m.range_id, m.name
)
SELECT track, (-row_number() OVER (ORDER BY track, start_ns, range_id))::INTEGER, name, start_ns, end_ns
FROM launched
WHERE start_ns < end_ns;
