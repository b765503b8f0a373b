-- Time-weighted means of sampled GPU metrics for each GPU: for the whole capture, during compute, during
-- each step, and during the work that each NVTX range launched from its own thread. To sample the metrics,
-- use `nsys profile --gpu-metrics-devices=all`.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- scope VARCHAR: time over which the metrics are averaged: whole (first to last operation), compute (while
--   a kernel other than a communication kernel ran), step or range
-- name VARCHAR: name of the step, or of the range as domain:name; NULL for other scopes
-- instances BIGINT: number of intervals over which the metrics are averaged
-- time_ns BIGINT: total length of the intervals, ns
-- sampled_ns BIGINT: part of time_ns that is covered by samples, ns; if this part is 0, the metrics are NULL
-- sm_active_pct DOUBLE: SMs Active: percentage of cycles in which an SM had at least one warp in flight,
--   averaged over all SMs
-- sm_issue_pct DOUBLE: SM Issue: percentage of cycles in which an SM sub-partition (warp scheduler) issued an
--   instruction
-- tensor_active_pct DOUBLE: percentage of cycles in which the tensor pipes were active
-- dram_read_pct DOUBLE: DRAM read bandwidth, % of peak
-- dram_write_pct DOUBLE: DRAM write bandwidth, % of peak
-- dram_bytes_per_s DOUBLE: DRAM read and write bandwidth combined, byte/s; NULL if the GPU's peak
--   bandwidth is unknown
CREATE VIEW gpu_metrics_sum AS
WITH windows AS (
    SELECT track, 'whole' AS scope, NULL::VARCHAR AS name, NULL::BIGINT AS step_index, start_ns, end_ns
    FROM _spans
    UNION ALL
    SELECT track, 'compute', NULL, NULL, greatest(start_ns, compute_until), end_ns
    FROM _ops
    WHERE class = 'compute' AND end_ns > greatest(start_ns, compute_until)
    UNION ALL
    SELECT track, 'step', name, step, start_ns, end_ns
    FROM _step_windows
    WHERE step IS NOT NULL
    UNION ALL
    SELECT t.track, 'range', nsys_range_name(r.domain, r.name), NULL, r.gpu_start_ns, r.gpu_end_ns
    FROM nsys_nvtx_ranges AS r
    JOIN _tracks AS t USING (report_id, pid)
    WHERE r.gpu_calls > 0
),
sampled AS (
    SELECT row_number() OVER () AS id, *
    FROM windows
    WHERE track IN (SELECT track FROM _metric_samples)
),
ends AS (
    SELECT id, track, false AS upper, start_ns AS at_ns FROM sampled
    UNION ALL
    SELECT id, track, true, end_ns FROM sampled
),
integrals AS (
    SELECT
        w.id,
        w.upper,
        m.sampled_before + least(w.at_ns, m.end_ns) - m.start_ns AS sampled_ns,
        m.sm_active_before + m.sm_active * (least(w.at_ns, m.end_ns) - m.start_ns) AS sm_active,
        m.sm_issue_before + m.sm_issue * (least(w.at_ns, m.end_ns) - m.start_ns) AS sm_issue,
        m.tensor_active_before + m.tensor_active * (least(w.at_ns, m.end_ns) - m.start_ns) AS tensor_active,
        m.dram_read_before + m.dram_read * (least(w.at_ns, m.end_ns) - m.start_ns) AS dram_read,
        m.dram_write_before + m.dram_write * (least(w.at_ns, m.end_ns) - m.start_ns) AS dram_write
    FROM ends AS w
    ASOF JOIN _metric_samples AS m ON m.track = w.track AND m.start_ns <= w.at_ns
),
sums AS (
    SELECT
        w.track,
        w.scope,
        w.name,
        w.step_index,
        count(*) AS instances,
        sum(w.end_ns - w.start_ns)::BIGINT AS time_ns,
        coalesce(sum(u.sampled_ns - coalesce(f.sampled_ns, 0)), 0)::BIGINT AS sampled_ns,
        sum(u.sm_active - coalesce(f.sm_active, 0 * u.sm_active)) AS sm_active,
        sum(u.sm_issue - coalesce(f.sm_issue, 0 * u.sm_issue)) AS sm_issue,
        sum(u.tensor_active - coalesce(f.tensor_active, 0 * u.tensor_active)) AS tensor_active,
        sum(u.dram_read - coalesce(f.dram_read, 0 * u.dram_read)) AS dram_read,
        sum(u.dram_write - coalesce(f.dram_write, 0 * u.dram_write)) AS dram_write
    FROM sampled AS w
    LEFT JOIN integrals AS u ON u.id = w.id AND u.upper
    LEFT JOIN integrals AS f ON f.id = w.id AND NOT f.upper
    GROUP BY w.track, w.scope, w.name, w.step_index
)
SELECT
    t.report_id,
    t.device,
    s.scope,
    s.name,
    s.instances,
    s.time_ns,
    s.sampled_ns,
    s.sm_active / 256 / nullif(s.sampled_ns, 0) AS sm_active_pct,
    s.sm_issue / 256 / nullif(s.sampled_ns, 0) AS sm_issue_pct,
    s.tensor_active / 256 / nullif(s.sampled_ns, 0) AS tensor_active_pct,
    s.dram_read / 256 / nullif(s.sampled_ns, 0) AS dram_read_pct,
    s.dram_write / 256 / nullif(s.sampled_ns, 0) AS dram_write_pct,
    (s.dram_read + s.dram_write) / 256 / nullif(s.sampled_ns, 0) / 100
        * g.memory_bandwidth AS dram_bytes_per_s
FROM sums AS s
JOIN _gpus AS t USING (track)
LEFT JOIN nsys_gpus AS g ON g.report_id = t.report_id AND g.gpu = t.device
ORDER BY s.track, s.scope, s.step_index, s.time_ns DESC, s.name;
