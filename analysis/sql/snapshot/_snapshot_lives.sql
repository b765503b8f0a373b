-- Allocations of a memory snapshot with what they are for, by the pass that allocated and the pass that
-- released. Memory that a pass allocates and releases is temporary. What outlives its pass is a gradient
-- (backward), a state of an optimizer, or, if a later backward pass releases it, an activation. What is still
-- in use at the end of the snapshot in the pass that allocated it is not decided: forward, backward. `scales`
-- says whether it is expected to grow with the batch.
-- @materialize
CREATE VIEW _snapshot_lives AS
WITH passes AS (
    SELECT
        report_id, device, run,
        min(event) AS event,
        -- Backward passes from this one on.
        count(*) OVER (PARTITION BY report_id, device ORDER BY run DESC) AS left_over
    FROM _snapshot_parts
    WHERE current = 'backward'
    GROUP BY report_id, device, run
),
last_runs AS (
    SELECT report_id, device, max(run) AS run
    FROM _snapshot_parts
    GROUP BY report_id, device
),
placed AS (
    SELECT
        a.report_id, a.allocation_id, a.device, a.bytes, a.stack_id, a.start_event, a.end_event,
        s.phase, s.node,
        b.run AS start_run,
        e.run AS end_run,
        e.part AS end_part,
        l.run AS last_run,
        e.phase AS end_phase,
        -- The first backward pass after the allocation; a missing start is before all.
        p.event AS backward_event,
        coalesce(p.left_over, 0) AS backward_passes
    FROM snapshot_allocations AS a
    LEFT JOIN snapshot_stacks AS s ON s.report_id = a.report_id AND s.stack_id = a.stack_id
    LEFT JOIN _snapshot_parts AS b ON b.report_id = a.report_id AND b.event = a.start_event
    LEFT JOIN _snapshot_parts AS e ON e.report_id = a.report_id AND e.event = a.end_event
    LEFT JOIN last_runs AS l ON l.report_id = a.report_id AND l.device = a.device
    ASOF LEFT JOIN passes AS p
        ON p.report_id = a.report_id AND p.device = a.device AND p.event > coalesce(a.start_event, -1)
),
decided AS (
    SELECT
        *,
        CASE
            WHEN phase IS NULL THEN if(start_event IS NULL, 'earlier', 'unknown')
            WHEN node = 'AccumulateGrad' AND (end_run IS NULL OR end_run != start_run) THEN 'gradients'
            WHEN phase = 'recompute' AND end_run = start_run
                THEN if(end_phase = 'backward', 'activations', 'temporary')
            WHEN phase IN ('backward', 'recompute', 'optimizer', 'parameters') AND end_run = start_run
                THEN 'temporary'
            WHEN phase IN ('backward', 'recompute') AND end_run IS NULL AND start_run = last_run
                THEN 'backward'
            WHEN phase IN ('backward', 'recompute') THEN 'gradients'
            WHEN phase = 'optimizer' THEN 'optimizer state'
            WHEN phase = 'parameters' THEN 'parameters'
            WHEN end_part = 'backward' AND end_run IS DISTINCT FROM start_run THEN 'activations'
            WHEN end_event < coalesce(backward_event, end_event + 1) THEN 'temporary'
            WHEN phase = 'forward' AND backward_passes = 0 THEN 'forward'
            WHEN phase = 'forward' AND (end_event IS NOT NULL OR backward_passes = 1) THEN 'activations'
            ELSE 'unknown'
        END AS category
    FROM placed
)
SELECT
    report_id,
    allocation_id,
    device,
    bytes,
    stack_id,
    start_event,
    end_event,
    category,
    category IN ('activations', 'forward', 'backward')
        OR (category = 'temporary' AND phase NOT IN ('optimizer', 'parameters')) AS scales
FROM decided;
