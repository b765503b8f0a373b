-- GPU time by class of PyTorch module: the kernels that modules of the class launched themselves, without
-- those of the modules in them. Covers the same kernels as module_times.
--
-- report_id VARCHAR: report
-- device BIGINT: physical GPU number
-- class VARCHAR: class of the modules
-- modules BIGINT: number of modules of the class that launched kernels
-- kernels BIGINT: number of kernel launches
-- gpu_time_ns BIGINT: GPU time, ns
-- forward_ns BIGINT: part of gpu_time_ns in the forward pass, ns
-- backward_ns BIGINT: part of gpu_time_ns in the backward pass, ns
-- share_pct DOUBLE: percentage of the time of all kernels
-- operators VARCHAR: the three operators with the most GPU time, most first
CREATE VIEW module_classes AS
WITH sums AS (
    SELECT
        report_id,
        device,
        class,
        operator,
        count(*) AS kernels,
        coalesce(sum(dur_ns), 0)::BIGINT AS ns,
        coalesce(sum(dur_ns) FILTER (phase = 'forward'), 0)::BIGINT AS forward_ns,
        coalesce(sum(dur_ns) FILTER (phase = 'backward'), 0)::BIGINT AS backward_ns
    FROM _covered_modules
    GROUP BY ALL
),
instances AS (
    SELECT report_id, device, class, count(DISTINCT (model, module)) AS modules
    FROM _covered_modules
    WHERE class IS NOT NULL
    GROUP BY ALL
),
classes AS (
    SELECT
        report_id,
        device,
        class,
        sum(kernels)::BIGINT AS kernels,
        sum(ns)::BIGINT AS gpu_time_ns,
        sum(forward_ns)::BIGINT AS forward_ns,
        sum(backward_ns)::BIGINT AS backward_ns,
        array_to_string(list(operator ORDER BY ns DESC, operator)[:3], ', ') AS operators
    FROM sums
    GROUP BY report_id, device, class
)
SELECT
    c.report_id,
    c.device,
    c.class,
    i.modules,
    c.kernels,
    c.gpu_time_ns,
    c.forward_ns,
    c.backward_ns,
    100.0 * c.gpu_time_ns / nullif(t.gpu_time_ns, 0) AS share_pct,
    c.operators
FROM classes AS c
JOIN instances AS i USING (report_id, device, class)
JOIN (SELECT report_id, device, sum(gpu_time_ns) AS gpu_time_ns FROM classes GROUP BY report_id, device) AS t
    USING (report_id, device)
ORDER BY c.report_id, c.device, c.gpu_time_ns DESC, c.class;
