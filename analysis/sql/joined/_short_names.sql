-- Short names of kernels by the name that nsys's statistics print.
CREATE VIEW _short_names AS
SELECT report_id, demangled AS name, short_name
FROM _known_kernels;
