-- Windows of the ranges named $title (domain:name, or the name alone).  On each GPU, a window lasts from the
-- start of the first operation that the process launched while the range was open to the end of the last
-- such operation.  At most $most windows.
INSERT INTO _chosen_windows
WITH ranges AS (
    SELECT report_id, pid, range_id, name, start_ns, end_ns
    FROM nsys_nvtx_ranges
    WHERE (name = $title OR nsys_range_name(domain, name) = $title) AND end_ns IS NOT NULL
    ORDER BY report_id, start_ns, range_id
    LIMIT $most
),
launched AS (
    SELECT t.track, r.report_id, r.range_id, r.name, min(l.start_ns) AS start_ns, max(l.end_ns) AS end_ns
    FROM ranges AS r
    JOIN launches AS l
        ON l.report_id = r.report_id AND l.pid = r.pid AND l.api_start_ns BETWEEN r.start_ns AND r.end_ns
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    GROUP BY t.track, r.report_id, r.range_id, r.name
)
SELECT track, (-row_number() OVER (ORDER BY track, start_ns, range_id))::INTEGER, name, start_ns, end_ns
FROM launched
WHERE start_ns < end_ns;
