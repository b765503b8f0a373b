-- Parts of the critical path of a step: what the step's time consists of. A part that is not on the path
-- would save nothing if it were shorter.
--
-- job VARCHAR: job, as in job_ranks; the report_id if the report's processes do not communicate
-- role VARCHAR: which step: median or slowest, as in step_pictures
-- report_id VARCHAR: report of the GPU that the step belongs to
-- device BIGINT: physical GPU number of this GPU
-- step BIGINT: number of the step; NULL if there are no steps
-- category VARCHAR: category, as in critical_path
-- name VARCHAR: kernel, operation or call; for host work the NVTX range around the launch that follows, with
--   * for counters; NULL if there is none, or for gaps
-- on_rank BIGINT: rank on which the part is; NULL for collectives that all ranks have begun, and if the
--   report's processes do not communicate
-- elsewhere BOOLEAN: whether the part is on another rank, which arrives last in the collective that follows
-- segments BIGINT: number of segments of the path
-- time_ns BIGINT: time on the path, ns
-- share_pct DOUBLE: time on the path, % of the step
-- waits_ns BIGINT: how long the GPU of the step waits for this rank in a collective during the part, ns
CREATE VIEW critical_path_parts AS
WITH named AS (
    SELECT
        * EXCLUDE (name),
        CASE
            WHEN category = 'host' THEN range_stem(nvtx_range)
            WHEN category NOT IN ('queued', 'kernel_gap', 'device_wait') THEN name
        END AS name
    FROM critical_path
)
SELECT
    job, role, report_id, device, step, category, name, on_rank, elsewhere,
    count(*) AS segments,
    sum(dur_ns)::BIGINT AS time_ns,
    100.0 * sum(dur_ns) / nullif(sum(sum(dur_ns)) OVER (PARTITION BY job, role), 0) AS share_pct,
    sum(waits_ns)::BIGINT AS waits_ns
FROM named
GROUP BY job, role, report_id, device, step, category, name, on_rank, elsewhere
ORDER BY job, role, time_ns DESC, category, name, on_rank;
