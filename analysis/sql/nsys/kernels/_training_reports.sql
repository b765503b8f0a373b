-- Reports of programs that train, by the names of kernels and ranges: of optimizers and backward passes.
CREATE VIEW _training_reports AS
SELECT report_id
FROM _known_kernels
WHERE kernel_category(name, demangled) = 'optimizer' OR is_training(demangled)
UNION
SELECT report_id
FROM nsys_nvtx_ranges
WHERE name IN (SELECT name FROM _names WHERE kind = 'range' AND is_training(name));
