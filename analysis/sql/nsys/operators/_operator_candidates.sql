-- The kernels in the windows of operators, each with the operator that its name gives away.
CREATE VIEW _operator_candidates AS
SELECT
    t.track,
    l.stream,
    l.op_id,
    n.demangled,
    l.start_ns,
    l.end_ns - l.start_ns AS dur_ns,
    n.short_name,
    n.category,
    n.operator
FROM launches AS l
JOIN _tracks AS t
    ON t.report_id = l.report_id
        AND t.pid IS NOT DISTINCT FROM l.pid
        AND t.cuda_device IS NOT DISTINCT FROM l.device
JOIN _operator_windows AS w ON w.track = t.track AND l.start_ns >= w.start_ns AND l.start_ns < w.end_ns
JOIN _operator_names AS n
    ON n.report_id = l.report_id AND n.demangled = coalesce(l.demangled, l.name)
WHERE l.kind = 'kernel';
