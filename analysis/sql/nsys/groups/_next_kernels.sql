-- Category of the next matrix product or attention kernel that the same thread launches after each
-- communication kernel: it shows for what the data are.
-- @materialize
CREATE VIEW _next_kernels AS
WITH heavy_names AS (
    SELECT report_id, name, bool_or(category = 'attention') AS attends
    FROM kernel_names
    WHERE category IN ('gemm', 'attention')
    GROUP BY report_id, name
),
heavy AS (
    SELECT o.track, o.tid, o.api_start_ns, bool_or(h.attends) AS attends
    FROM _ops AS o
    JOIN _gpus AS g USING (track)
    JOIN _names AS n ON n.number = o.name_number
    JOIN heavy_names AS h ON h.report_id = g.report_id AND h.name = n.name
    WHERE o.class = 'compute' AND o.api_start_ns IS NOT NULL
    GROUP BY o.track, o.tid, o.api_start_ns
)
SELECT c.report_id, c.op_id, h.attends
FROM _collectives AS c
ASOF JOIN heavy AS h ON h.track = c.track AND h.tid = c.tid AND h.api_start_ns >= c.api_start_ns
WHERE c.analysed AND c.operation != 'AllReduce';
