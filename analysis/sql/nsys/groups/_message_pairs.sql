-- Messages of which both sides were captured, on the clock of the job. The transfer begins when both sides
-- have arrived; it lasts as long as the shorter kernel. The step is the receiver's. Both sides are in windows
-- of which lateness is known; `analysed` marks messages of which both are in the analyzed window.
-- @materialize
CREATE VIEW _message_pairs AS
WITH aligned AS (
    SELECT m.*, m.start_ns + c.offset_ns AS at_ns
    FROM _messages AS m
    JOIN _clocks AS c USING (job, report_id)
)
SELECT
    s.job,
    s.communicator,
    s.source,
    s.target,
    coalesce(s.bytes, r.bytes) AS bytes,
    r.report_id AS target_report,
    r.op_id AS target_op,
    w.step,
    least(s.end_ns - s.start_ns, r.end_ns - r.start_ns) AS transfer_ns,
    -- Time that the receiver waits for the sender, and the sender for the receiver.
    greatest(0, s.at_ns - r.at_ns) AS receiver_ns,
    greatest(0, r.at_ns - s.at_ns) AS sender_ns,
    s.analysed AND r.analysed AS analysed
FROM aligned AS s
JOIN aligned AS r
    ON r.job = s.job
        AND r.communicator IS NOT DISTINCT FROM s.communicator
        AND r.source = s.source
        AND r.target = s.target
        AND r.nth = s.nth
JOIN _step_windows AS w ON w.track = r.track AND w.window_id = r.window_id
WHERE s.way = 'send' AND r.way = 'receive' AND s.settled AND r.settled;
