-- What shows the kind of each group of ranks: which operations carry its bytes, in which passes, before which
-- kernels, and how often per step. Without sizes, the durations of the kernels count instead of their bytes.
-- @materialize
CREATE VIEW _group_features AS
WITH steps AS (
    SELECT job, group_id, sum(steps)::BIGINT AS steps
    FROM (SELECT DISTINCT job, group_id, report_id, device FROM _group_ops)
    JOIN analysis_windows USING (report_id, device)
    GROUP BY job, group_id
),
weighed AS (
    SELECT
        *,
        if(count(bytes) OVER (PARTITION BY job, group_id) = 0, dur_ns, coalesce(bytes, 0)) AS weight
    FROM _group_ops
),
sizes AS (
    SELECT job, group_id, operation, bytes, count(*) AS calls
    FROM weighed
    WHERE operation = 'AllReduce'
    GROUP BY job, group_id, operation, bytes
),
repeated AS (
    SELECT job, group_id, max(calls) AS calls
    FROM sizes
    GROUP BY job, group_id
),
-- Sizes of the n-th all-to-all of a step that change from step to step come from data, such as routed tokens.
exchanges AS (
    SELECT
        job, group_id, track, bytes,
        row_number() OVER (PARTITION BY track, group_id, window_id ORDER BY start_ns, op_id) AS nth
    FROM weighed
    WHERE operation = 'AllToAll'
),
varying AS (
    SELECT
        job,
        group_id,
        coalesce(sum(bytes) FILTER (varies) >= threshold('groups.main_share') * sum(bytes), false) AS varies
    FROM (
        SELECT job, group_id, track, nth, min(bytes) < max(bytes) AS varies, sum(bytes) AS bytes
        FROM exchanges
        GROUP BY job, group_id, track, nth
    )
    GROUP BY job, group_id
),
sums AS (
    SELECT
        job,
        group_id,
        any_value(communicator ORDER BY communicator) AS communicator,
        any_value(message_ranks ORDER BY message_ranks) AS message_ranks,
        list_sort(list(DISTINCT rank)) AS captured,
        max(participants) AS participants,
        count(*) AS calls,
        sum(bytes)::BIGINT AS bytes,
        sum(weight)::BIGINT AS weight,
        (sum(weight) FILTER (operation = 'AllReduce'))::BIGINT AS reduced,
        (sum(weight) FILTER (operation = 'AllReduce' AND phase = 'forward'))::BIGINT AS reduced_forward,
        (sum(weight) FILTER (operation = 'AllGather'))::BIGINT AS gathered,
        (sum(weight) FILTER (operation = 'ReduceScatter'))::BIGINT AS scattered,
        (sum(weight) FILTER (operation = 'ReduceScatter' AND phase = 'forward'))::BIGINT AS scattered_forward,
        (sum(weight) FILTER (operation = 'AllToAll'))::BIGINT AS exchanged,
        count(*) FILTER (operation = 'AllToAll' AND attends) AS exchanged_for_attention,
        count(*) FILTER (operation = 'AllToAll') AS exchanges,
        count(*) FILTER (operation = 'AllGather' AND phase = 'forward' AND attends) AS gathered_for_attention,
        count(*) FILTER (operation = 'AllGather' AND phase = 'forward') AS gathers,
        bool_or(attends) AS attends,
        bool_and(phase IS NOT NULL) AS phased,
        string_agg(DISTINCT operation, ', ' ORDER BY operation) AS operations
    FROM weighed
    GROUP BY job, group_id
)
SELECT
    s.*,
    t.steps,
    s.calls / t.steps AS per_step,
    r.calls / t.steps AS repeats,
    v.varies
FROM sums AS s
LEFT JOIN steps AS t USING (job, group_id)
LEFT JOIN repeated AS r USING (job, group_id)
LEFT JOIN varying AS v USING (job, group_id);
