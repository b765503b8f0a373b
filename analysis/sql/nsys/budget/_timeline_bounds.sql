-- Timelines with a verdict on their bound. Benchmarks are excluded, because their idle time belongs to the
-- harness.
CREATE VIEW _timeline_bounds AS
FROM timeline_bottleneck
ANTI JOIN benchmark_loops USING (report_id, device);
