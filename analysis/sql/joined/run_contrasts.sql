-- Parameters that matter: the fastest and the slowest value of one parameter, among configurations of a run
-- that have the same declared work and do not differ in any other parameter. Configurations tried by a search
-- are excluded, because picking the fastest of many configurations exaggerates the difference.
--
-- run_id VARCHAR: run
-- rank BIGINT: position in the list, from 1 for the largest ratio
-- parameter VARCHAR: parameter that differs
-- fast_value VARCHAR: value of the parameter in the fastest configuration
-- slow_value VARCHAR: value of the parameter in the slowest configuration
-- rest VARCHAR: values of the other parameters, which both configurations share
-- fast_index BIGINT: task_index (as in run_tasks) of the fastest configuration
-- slow_index BIGINT: task_index (as in run_tasks) of the slowest configuration
-- fast_ms DOUBLE: median iteration time of the fastest configuration, ms
-- slow_ms DOUBLE: median iteration time of the slowest configuration, ms
-- ratio DOUBLE: slow_ms / fast_ms
CREATE VIEW run_contrasts AS
WITH timed AS (
    SELECT *, map_entries(params::JSON::MAP(VARCHAR, VARCHAR)) AS entries
    FROM run_tasks
    WHERE median_ms > 0 AND generation IS NULL
),
choices AS (
    SELECT
        run_id,
        task_index,
        median_ms,
        flops,
        bytes,
        dtype,
        e.key AS parameter,
        e.value AS chosen,
        array_to_string(list_transform(
            list_filter(entries, lambda other: other.key != e.key),
            lambda other: concat(other.key, '=', other.value)
        ), ' ') AS rest
    FROM timed, unnest(entries) AS of (e)
),
compared AS (
    SELECT
        run_id,
        parameter,
        rest,
        arg_min(chosen, (median_ms, task_index)) AS fast_value,
        arg_max(chosen, (median_ms, task_index)) AS slow_value,
        arg_min(task_index, (median_ms, task_index)) AS fast_index,
        arg_max(task_index, (median_ms, task_index)) AS slow_index,
        min(median_ms) AS fast_ms,
        max(median_ms) AS slow_ms
    FROM choices
    GROUP BY run_id, parameter, rest, flops, bytes, dtype
    HAVING count(DISTINCT chosen) > 1 AND (any_value(flops) IS NOT NULL OR any_value(bytes) IS NOT NULL)
)
SELECT
    run_id,
    row_number() OVER (
        PARTITION BY run_id ORDER BY slow_ms / fast_ms DESC, parameter, rest
    ) AS rank,
    parameter,
    fast_value,
    slow_value,
    rest,
    fast_index,
    slow_index,
    fast_ms,
    slow_ms,
    slow_ms / fast_ms AS ratio
FROM compared
ORDER BY run_id, rank;
