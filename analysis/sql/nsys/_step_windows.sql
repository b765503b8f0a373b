-- Steps on the GPU: from the first operation that a step launched to the first of the next step, so that
-- what runs and idles between them belongs to the earlier one; the last step ends with the last operation
-- of the device.  A host that runs ahead leaves a step's own range long before the GPU begins it.
-- Computed once.
CREATE VIEW _step_windows AS
WITH steps AS (
    SELECT a.report_id, a.leaf, r.range_id, r.name
    FROM _range_ancestors AS a
    JOIN nsys_nvtx_ranges AS r ON r.report_id = a.report_id AND r.range_id = a.range_id
    WHERE is_step(r.name)
),
firsts AS (
    SELECT t.track, s.range_id, any_value(s.name) AS name, min(l.start_ns) AS start_ns
    FROM steps AS s
    JOIN nsys_call_ranges AS c ON c.report_id = s.report_id AND c.range_id = s.leaf
    JOIN launches AS l ON l.report_id = c.report_id AND l.pid = c.pid AND l.correlation_id = c.correlation_id
    JOIN _tracks AS t ON t.report_id = l.report_id AND t.pid = l.pid AND t.cuda_device = l.device
    GROUP BY t.track, s.range_id
),
ends AS (
    SELECT track, max(end_ns) AS end_ns
    FROM _gpu_ops
    GROUP BY track
)
SELECT
    f.track,
    row_number() OVER w AS window_id,
    f.name,
    f.start_ns,
    coalesce(lead(f.start_ns) OVER w, e.end_ns) AS end_ns
FROM firsts AS f
JOIN ends AS e USING (track)
WINDOW w AS (PARTITION BY f.track ORDER BY f.start_ns, f.range_id);
