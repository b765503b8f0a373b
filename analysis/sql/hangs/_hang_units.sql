-- What each rank executes as one: a call, or a coalesced batch of calls, whose state is that of its end.
-- `said` is what the ranks of a collective must agree on.  Gloo keeps no states: a call that it no longer
-- watches has ended.
-- @materialize
CREATE VIEW _hang_units AS
SELECT
    c.report_id,
    c.rank,
    c.group_id,
    c.p2p,
    c.sequence,
    min(c.record_id) AS record_id,
    arg_max(c.state = 'completed' OR (g.backend = 'gloo' AND c.retired = 1), c.record_id) AS finished,
    arg_max(c.state, c.record_id) = 'started' AS started,
    min(c.created_ns) AS created_ns,
    max(c.timeout_ms) AS timeout_ms,
    arg_min(c.stack_id, c.record_id) AS stack_id,
    CASE WHEN count(*) > 1 AND c.p2p = 1 THEN 'batch' ELSE arg_min(c.operation, c.record_id) END AS operation,
    string_agg(
        concat_ws(
            ' ',
            c.operation,
            agreed_operands(
                c.operation, c.input_elements, c.output_elements, c.input_types, c.output_types
            )
        ), ', ' ORDER BY c.record_id
    ) FILTER (c.p2p = 0) AS said
FROM hang_calls AS c
JOIN hang_groups AS g ON g.report_id = c.report_id AND g.group_id = c.group_id
GROUP BY c.report_id, c.rank, c.group_id, c.p2p, c.sequence;
