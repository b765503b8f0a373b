-- Short name of each profiled launch, and the operators that torch.compile fused into its kernel.
CREATE VIEW _launch_names AS
SELECT l.report_id, l.launch_id, coalesce(n.short_name, l.kernel_name) AS short_name, n.operators
FROM ncu_launches AS l
LEFT JOIN _known_kernels AS n
    ON n.report_id = l.report_id AND n.demangled = coalesce(l.kernel_demangled, l.kernel_name);
