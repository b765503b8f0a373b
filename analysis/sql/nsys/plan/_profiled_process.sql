-- Process and GPU of each report whose kernels are profiled. With several ranks, it is the first rank that
-- computes at least half as much as any other: ranks mostly run the same kernels, and each profiled rank
-- delays the others. `refused` is the reason if none may be profiled.
-- @materialize
CREATE VIEW _profiled_process AS
WITH processes AS (
    SELECT
        report_id,
        device,
        pid,
        cuda_device,
        coalesce(sum(time_ns) FILTER (NOT communication), 0)::BIGINT AS compute_ns,
        coalesce(sum(time_ns) FILTER (communication), 0)::BIGINT AS communication_ns
    FROM _window_kernels
    GROUP BY report_id, device, pid, cuda_device
),
compared AS (
    SELECT
        *,
        2 * compute_ns >= max(compute_ns) OVER (PARTITION BY report_id) AS computes,
        count(*) OVER (PARTITION BY report_id) AS processes,
        count(*) OVER (PARTITION BY report_id, cuda_device) AS alike,
        sum(communication_ns) OVER (PARTITION BY report_id) > 0 AS communicates
    FROM processes
)
SELECT
    report_id,
    device,
    pid,
    cuda_device,
    compute_ns,
    communication_ns,
    processes,
    CASE
        WHEN compute_ns = 0 THEN 'only communication kernels run in the analyzed window'
        WHEN communicates AND alike > 1 THEN printf(
            '%d ranks all use GPU number %d, so ncu cannot select one of them, and replaying kernels on '
            || 'all ranks can deadlock; run ncu on the program of one rank only',
            alike,
            cuda_device
        )
    END AS refused
FROM compared
QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY computes DESC, device, pid) = 1;
