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
-- The last event before each annotation.
merged AS (
    SELECT report_id, device, time_ns, event, false AS ends
    FROM snapshot_events
    WHERE time_ns IS NOT NULL
    UNION ALL
    SELECT report_id, device, time_ns, NULL, true
    FROM annotated
),
preceded AS (
    SELECT
        report_id, device, ends,
        max(event) OVER (
            PARTITION BY report_id, device ORDER BY time_ns, ends, event ROWS UNBOUNDED PRECEDING
        ) AS event
    FROM merged
),
by_annotation AS (
    SELECT DISTINCT report_id, device, 'annotation' AS source, event
    FROM preceded
    WHERE ends AND event IS NOT NULL
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
    SELECT *, row_number() OVER (PARTITION BY report_id, device ORDER BY event) - 1 AS step
    FROM chosen
),
moments AS (
    SELECT report_id, device, event, bytes, false AS ends
    FROM _snapshot_moments
    UNION ALL
    SELECT report_id, device, event, NULL, true
    FROM numbered
),
-- A moment belongs to the next step that ends.
placed AS (
    SELECT
        *,
        (sum(ends::INTEGER) OVER (
            PARTITION BY report_id, device ORDER BY event, ends ROWS UNBOUNDED PRECEDING
        ))::BIGINT - ends::INTEGER AS step
    FROM moments
),
inside AS (
    SELECT report_id, device, step, max(bytes) AS peak_bytes, arg_max(bytes, event) AS bytes
    FROM placed
    WHERE NOT ends
    GROUP BY report_id, device, step
)
SELECT n.report_id, n.device, n.step, n.event, n.source, i.bytes, i.peak_bytes
FROM numbered AS n
JOIN inside AS i ON i.report_id = n.report_id AND i.device = n.device AND i.step = n.step
ORDER BY n.report_id, n.device, n.step;
