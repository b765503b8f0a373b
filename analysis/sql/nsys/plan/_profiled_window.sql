-- The window of each GPU whose kernels are worth profiling: the part of the capture that verdicts
-- are about.
CREATE VIEW _profiled_window AS
SELECT report_id, device, kind, start_ns, end_ns, steps
FROM analysis_windows;
