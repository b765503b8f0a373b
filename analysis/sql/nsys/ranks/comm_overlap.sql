-- Overlap of inter-GPU communication with compute, computed from unions of intervals rather than sums of
-- durations. Only kernels that begin within the analyzed window (the steady steps, if there are steps) are
-- included.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- communication_ns BIGINT: time during which at least one communication kernel ran, ns
-- compute_ns BIGINT: time during which at least one other kernel ran, ns
-- overlapped_ns BIGINT: time during which communication and compute kernels ran concurrently, ns
-- exposed_ns BIGINT: exposed communication: communication time without concurrent compute, ns
-- overlap_pct DOUBLE: overlapped_ns as a percentage of communication_ns; NULL if there is no communication
CREATE VIEW comm_overlap AS
WITH unions AS (
    SELECT
        track,
        coalesce(
            sum(beyond_ns(start_ns, end_ns, communication_until)) FILTER (WHERE class = 'communication'), 0
        )::BIGINT AS communication_ns,
        coalesce(
            sum(beyond_ns(start_ns, end_ns, compute_until)) FILTER (WHERE class = 'compute'), 0
        )::BIGINT AS compute_ns,
        coalesce(
            sum(beyond_ns(start_ns, end_ns, kernels_until)) FILTER (WHERE class != 'transfer'), 0
        )::BIGINT AS either_ns
    FROM _ops
    SEMI JOIN _analysed USING (track, window_id)
    GROUP BY track
)
SELECT
    t.report_id,
    t.device,
    communication_ns,
    compute_ns,
    communication_ns + compute_ns - either_ns AS overlapped_ns,
    either_ns - compute_ns AS exposed_ns,
    100.0 * (communication_ns + compute_ns - either_ns) / nullif(communication_ns, 0) AS overlap_pct
FROM unions
JOIN _gpus AS t USING (track)
ORDER BY t.report_id, t.device;
