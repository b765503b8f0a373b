-- Memory at the end of each step of a memory snapshot. A step ends with the step of the optimizer (its
-- annotation, else its stacks); a program without an optimizer has one step per backward pass.
-- @materialize
--
-- report_id VARCHAR: report
-- device BIGINT: index of the GPU in PyTorch
-- step BIGINT: number of the step, from 0
-- event BIGINT: last event of the step
-- source VARCHAR: what ends a step: annotation, optimizer or backward
-- bytes BIGINT: memory that tensors use at the end of the step, bytes
-- peak_bytes BIGINT: peak of this memory within the step, bytes
CREATE VIEW snapshot_steps AS
WITH first_names AS (
    SELECT report_id, device, arg_min(name, mark) AS name
    FROM snapshot_marks
    WHERE stage = 'END' AND regexp_matches(name, '^(ProfilerStep#|Optimizer\.step#)')
    GROUP BY report_id, device
),
annotated AS (
    SELECT m.report_id, m.device, m.time_ns
    FROM snapshot_marks AS m
    JOIN first_names AS f
        ON f.report_id = m.report_id AND f.device = m.device
        AND (m.name = f.name OR (m.name LIKE 'ProfilerStep#%' AND f.name LIKE 'ProfilerStep#%'))
    WHERE m.stage = 'END'
),
timed AS (
    SELECT report_id, device, event, time_ns
    FROM snapshot_events
    WHERE time_ns IS NOT NULL
),
by_annotation AS (
    SELECT a.report_id, a.device, 'annotation' AS source, max(t.event) AS event
    FROM annotated AS a
    ASOF JOIN timed AS t ON t.report_id = a.report_id AND t.device = a.device AND t.time_ns <= a.time_ns
    GROUP BY a.report_id, a.device, a.time_ns
),
by_pass AS (
    SELECT report_id, device, current AS source, max(event) AS event
    FROM _snapshot_parts
    WHERE current IN ('optimizer', 'backward')
    GROUP BY report_id, device, current, run
),
every AS (
    SELECT * FROM by_annotation
    UNION ALL
    SELECT * FROM by_pass
),
chosen AS (
    SELECT *
    FROM every
    QUALIFY dense_rank() OVER (
        PARTITION BY report_id, device
        ORDER BY list_position(['annotation', 'optimizer', 'backward'], source)
    ) = 1
),
numbered AS (
    SELECT
        *,
        row_number() OVER steps - 1 AS step,
        lag(event, 1, -1) OVER steps AS former
    FROM chosen
    WINDOW steps AS (PARTITION BY report_id, device ORDER BY event)
),
-- The step of each moment is the next one that ends.
inside AS (
    SELECT n.report_id, n.device, n.step, max(m.bytes) AS peak_bytes, arg_max(m.bytes, m.event) AS bytes
    FROM _snapshot_moments AS m
    ASOF JOIN numbered AS n ON n.report_id = m.report_id AND n.device = m.device AND n.event >= m.event
    GROUP BY n.report_id, n.device, n.step
)
SELECT n.report_id, n.device, n.step, n.event, n.source, i.bytes, i.peak_bytes
FROM numbered AS n
JOIN inside AS i ON i.report_id = n.report_id AND i.device = n.device AND i.step = n.step
ORDER BY n.report_id, n.device, n.step;
