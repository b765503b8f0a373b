-- Phases of each GPU's whole capture: consecutive windows of one phase. The time from the first CUDA call to
-- the first operation is start-up unless the program ran before the capture began; the time from the last
-- operation to the end of the last call is shutdown.
CREATE VIEW _capture_phases AS
WITH calls AS (
    SELECT report_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM nsys_api_calls
    GROUP BY report_id
),
windows AS (
    SELECT w.track, p.phase, w.start_ns, w.end_ns, w.step
    FROM _step_windows AS w
    JOIN _step_phases AS p USING (track, window_id)
    UNION ALL
    SELECT s.track, if(m.report_id IS NULL, 'start-up', 'other'), c.start_ns, s.start_ns, NULL
    FROM _spans AS s
    JOIN _gpus AS g USING (track)
    LEFT JOIN (SELECT DISTINCT report_id FROM _midway) AS m ON m.report_id = g.report_id
    JOIN calls AS c ON c.report_id = g.report_id AND c.start_ns < s.start_ns
    UNION ALL
    SELECT s.track, 'shutdown', s.end_ns, c.end_ns, NULL
    FROM _spans AS s
    JOIN _gpus AS g USING (track)
    JOIN calls AS c ON c.report_id = g.report_id AND c.end_ns > s.end_ns
),
begun AS (
    SELECT *, phase IS DISTINCT FROM lag(phase) OVER (PARTITION BY track ORDER BY start_ns, end_ns) AS begins
    FROM windows
),
numbered AS (
    SELECT *, count_if(begins) OVER (PARTITION BY track ORDER BY start_ns, end_ns) AS number
    FROM begun
)
SELECT
    g.report_id,
    g.device,
    n.track,
    n.phase,
    min(n.start_ns) AS start_ns,
    max(n.end_ns) AS end_ns,
    count(n.step) AS steps
FROM numbered AS n
JOIN _gpus AS g USING (track)
GROUP BY g.report_id, g.device, n.track, n.phase, n.number
ORDER BY g.report_id, g.device, min(n.start_ns);
