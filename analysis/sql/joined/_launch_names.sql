-- Short name of each profiled launch.
CREATE VIEW _launch_names AS
SELECT l.report_id, l.launch_id, coalesce(n.short_name, l.kernel_name) AS short_name
FROM ncu_launches AS l
LEFT JOIN _known_kernels AS n
    ON n.report_id = l.report_id AND n.demangled = coalesce(l.kernel_demangled, l.kernel_name);
