-- Launches whose tensor pipe works nearly all the time on FLOPs that count: the same work, done differently,
-- takes as long.  How far that is from the nominal peak is a matter of clocks.
CREATE VIEW _saturated_launches AS
SELECT i.report_id, i.launch_id
FROM _bottleneck_inputs AS i
LEFT JOIN gemm_quantisation AS q USING (report_id, launch_id)
WHERE of_tensor_peak(i.tensor_pct, i.mma_sync_pct) >= threshold('finding.saturated_pct')
    AND coalesce(q.padding_pct, 0) < 100 - threshold('finding.saturated_pct');
