-- Critical path of a typical step and of the slowest step of each job: what each nanosecond of the step
-- waited for. The path is that of the GPU whose step takes longest. It leads back from the end of the step,
-- from each event to the last of the events that it waited for: the operation before it on its stream, the
-- operations that a recorded CUDA event or a synchronizing call waits for, the call that launched it, the
-- work of the host before this call, and, in a collective, the rank that arrived last. The durations add up
-- to the step time.
--
-- job VARCHAR: job, as in job_ranks; the report_id if the report's processes do not communicate
-- role VARCHAR: which step: median or slowest, as in step_pictures
-- report_id VARCHAR: report of the GPU that the step belongs to
-- device BIGINT: physical GPU number of this GPU
-- step BIGINT: number of the step; NULL if there are no steps
-- place BIGINT: number of the segment, from 1, the start of the step
-- start_ns BIGINT: start of the segment relative to the start of the step, ns
-- dur_ns BIGINT: duration of the segment, ns
-- category VARCHAR: compute, communication, transfer or migration (the GPU works); launch_api (the call that
--   launches the next operation), queued (from its return to the start of the operation), kernel_gap (between
--   operations that were launched in time), device_wait (such a time of more than 500 us), host (between
--   calls, or before pages migrate), sync (from the end of the awaited work to the return of the waiting
--   call), loading or cuda_call (other calls), or unattributed (before anything that was recorded)
-- name VARCHAR: short name of the kernel, name of the operation or call; NULL for other categories
-- nvtx_range VARCHAR: innermost NVTX range around the call that launched the operation, or around the launch
--   that follows
-- on_rank BIGINT: rank on which the segment is; NULL for a collective that all ranks have begun, and if the
--   report's processes do not communicate
-- on_report VARCHAR: report in which the segment is
-- on_device BIGINT: physical number of the GPU that works; NULL for the host
-- thread BIGINT: thread of the host; NULL for the GPU
-- elsewhere BOOLEAN: whether the segment is on another rank, which arrives last in the collective that
--   follows
-- waits_ns BIGINT: how long the GPU of the step waits in a collective during the segment, ns; 0 unless
--   elsewhere
CREATE VIEW critical_path AS
WITH ranks AS (
    SELECT job, report_id, pid, min(rank) AS rank
    FROM _job_ranks
    GROUP BY job, report_id, pid
)
SELECT
    s.job,
    s.role,
    s.report_id,
    s.device,
    s.step,
    p.place,
    p.start_ns,
    p.dur_ns,
    p.category,
    p.name,
    coalesce(o.nvtx_range, f.nvtx_range) AS nvtx_range,
    coalesce(r.rank, g.rank) AS on_rank,
    p.report_id AS on_report,
    p.device AS on_device,
    p.tid AS thread,
    coalesce(coalesce(r.rank, g.rank) != w.rank, false) AS elsewhere,
    if(coalesce(coalesce(r.rank, g.rank) != w.rank, false), p.waits_ns, 0) AS waits_ns
FROM _path_steps AS s
JOIN _path_segments AS p USING (job, role)
LEFT JOIN launches AS o ON o.report_id = p.report_id AND o.op_id = p.op_id
LEFT JOIN launches AS f ON f.report_id = p.report_id AND f.op_id = p.next_op_id AND p.op_id IS NULL
LEFT JOIN ranks AS r ON r.job = p.job AND r.report_id = p.report_id AND r.pid = p.pid
LEFT JOIN _gpu_ranks AS g ON g.report_id = p.report_id AND g.device = p.device
LEFT JOIN _gpu_ranks AS w ON w.report_id = s.report_id AND w.device = s.device
ORDER BY s.job, s.role, p.place;
