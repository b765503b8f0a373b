-- Kernels with which benchmarks flush the L2 cache of a GPU, by full name.
CREATE VIEW _flush_kernels AS
SELECT report_id, device, unnest(flush_names) AS demangled
FROM benchmark_loops;
