-- The part of training that each event of a memory snapshot lies in. `part` is what its own stack says; an
-- event without a stack lies where the events around it lie. `run` numbers passes: a pass ends when a stack
-- says another one (forward, backward, optimizer).
-- @materialize
CREATE VIEW _snapshot_parts AS
WITH own AS (
    SELECT
        e.report_id, e.device, e.event, s.phase,
        CASE
            WHEN s.phase IN ('backward', 'recompute') THEN 'backward'
            WHEN s.phase IN ('forward', 'optimizer') THEN s.phase
        END AS pass
    FROM snapshot_events AS e
    LEFT JOIN snapshot_stacks AS s ON s.report_id = e.report_id AND s.stack_id = e.stack_id
),
filled AS (
    SELECT
        *,
        -- The event and the number of the last pass in one number: its maximum takes linear time.
        max(4 * event + list_position(['forward', 'backward', 'optimizer'], pass)) OVER (
            PARTITION BY report_id, device ORDER BY event ROWS UNBOUNDED PRECEDING
        ) % 4 AS number
    FROM own
),
named AS (
    SELECT *, ['forward', 'backward', 'optimizer'][number] AS current
    FROM filled
),
changed AS (
    SELECT
        *,
        current IS DISTINCT FROM lag(current) OVER (PARTITION BY report_id, device ORDER BY event) AS changes
    FROM named
)
SELECT
    report_id,
    device,
    event,
    phase,
    coalesce(pass, phase, current) AS part,
    current,
    (sum(changes::INTEGER) OVER (
        PARTITION BY report_id, device ORDER BY event ROWS UNBOUNDED PRECEDING
    ))::BIGINT AS run
FROM changed;
