-- Sampled GPU metrics, one row per sample; a value applies from the previous sample to this one. The *_before
-- columns are values times durations, summed over earlier samples, so that the difference of two rows gives
-- the mean of any window.
-- @materialize
CREATE VIEW _metric_samples AS
WITH samples AS (
    -- Sums of integers do not depend on the order of rows; 1/256 % is finer than the sampled values.
    SELECT report_id, gpu, timestamp_ns, metric, TRY_CAST(round(value * 256) AS BIGINT) AS units
    FROM nsys_gpu_metrics
),
wide AS (
    SELECT
        report_id,
        gpu,
        timestamp_ns,
        max(units) FILTER (WHERE regexp_matches(metric, '^SMs? Active.*%')) AS sm_active,
        max(units) FILTER (WHERE regexp_matches(metric, '^SM Issue.*%')) AS sm_issue,
        max(units) FILTER (WHERE regexp_matches(metric, '^Tensor Active.*%')) AS tensor_active,
        max(units) FILTER (WHERE regexp_matches(metric, '^DRAM Read Bandwidth.*%')) AS dram_read,
        max(units) FILTER (WHERE regexp_matches(metric, '^DRAM Write Bandwidth.*%')) AS dram_write
    FROM samples
    GROUP BY report_id, gpu, timestamp_ns
),
spans AS (
    SELECT t.track, m.* EXCLUDE (report_id, gpu, timestamp_ns), m.timestamp_ns AS end_ns,
        lag(m.timestamp_ns) OVER (PARTITION BY t.track ORDER BY m.timestamp_ns) AS start_ns
    FROM wide AS m
    JOIN _gpus AS t ON t.report_id = m.report_id AND t.device = m.gpu
)
SELECT
    track,
    start_ns,
    end_ns,
    coalesce(sum(length_ns) OVER earlier, 0)::BIGINT AS sampled_before,
    sm_active,
    coalesce((sum(sm_active * length_ns) OVER earlier)::BIGINT, 0 * sm_active) AS sm_active_before,
    sm_issue,
    coalesce((sum(sm_issue * length_ns) OVER earlier)::BIGINT, 0 * sm_issue) AS sm_issue_before,
    tensor_active,
    coalesce((sum(tensor_active * length_ns) OVER earlier)::BIGINT, 0 * tensor_active)
        AS tensor_active_before,
    dram_read,
    coalesce((sum(dram_read * length_ns) OVER earlier)::BIGINT, 0 * dram_read) AS dram_read_before,
    dram_write,
    coalesce((sum(dram_write * length_ns) OVER earlier)::BIGINT, 0 * dram_write) AS dram_write_before
FROM (SELECT *, end_ns - start_ns AS length_ns FROM spans)
WHERE start_ns IS NOT NULL
WINDOW earlier AS (PARTITION BY track ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);
