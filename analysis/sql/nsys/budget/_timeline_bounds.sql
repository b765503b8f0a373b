-- Timelines of which what bounds them is told: not those of benchmarks, whose idle time is the harness's.
CREATE VIEW _timeline_bounds AS
FROM timeline_bottleneck
ANTI JOIN benchmark_loops USING (report_id, device);
