-- Threads that moved a constant or a register with a packed FP16 multiply-add of zeros, such as
-- HFMA2.MMA R5, -RZ, RZ, 0, 0: ncu counts 4 FLOP each.  A launch has a row where its instructions were
-- counted by thread.
CREATE VIEW _register_moves AS
SELECT
    s.report_id,
    s.launch_id,
    ordered_sum(CASE
        WHEN regexp_matches(s.sass, '^(@!?U?P\w+ +)?HFMA2(\.\w+)* +\w+, *-?RZ, *-?RZ, ')
            THEN coalesce(i.value, s.thread_executions)
        ELSE 0
    END) AS threads
FROM ncu_source AS s
-- Not predicated off, as in the counters.
LEFT JOIN ncu_instances AS i
    ON i.report_id = s.report_id
    AND i.launch_id = s.launch_id
    AND i.metric = 'thread_inst_executed_true'
    AND i.key_int = s.address
WHERE s.thread_executions IS NOT NULL
GROUP BY s.report_id, s.launch_id;
