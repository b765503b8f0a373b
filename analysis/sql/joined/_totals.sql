-- Totals over the reports: profiled launches, with NVIDIA's and perfpipe's verdicts, and kernels of
-- timelines.
CREATE VIEW _totals AS
WITH profiled AS (
    SELECT
        count(*) AS launches,
        sum(l.duration_ns ORDER BY report_id, launch_id) AS profiled_ns,
        count(*) FILTER (WHERE b.agrees_with_ncu) AS agreed,
        count(b.agrees_with_ncu) AS judged
    FROM ncu_launches AS l
    JOIN kernel_bottleneck AS b USING (report_id, launch_id)
),
traced AS (
    SELECT count(*) AS kernels, sum(dur_ns)::BIGINT AS traced_ns
    FROM nsys_kernels
)
SELECT p.launches, p.profiled_ns, p.agreed, p.judged, t.kernels, t.traced_ns
FROM profiled AS p
CROSS JOIN traced AS t;
