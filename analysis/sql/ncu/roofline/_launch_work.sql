-- Work of each launch declared with 'perfpipe work'; the most specific declaration applies.
CREATE VIEW _launch_work AS
SELECT l.report_id, l.launch_id, w.flop, w.bytes, w.dtype
FROM ncu_launches AS l
JOIN launch_work AS w
    ON w.report_id = l.report_id
    AND coalesce(regexp_matches(l.kernel_demangled, w.kernel), w.kernel IS NULL)
    AND coalesce(regexp_matches(l.nvtx_path, w.nvtx), w.nvtx IS NULL)
QUALIFY row_number() OVER (
    PARTITION BY l.report_id, l.launch_id
    ORDER BY (w.kernel IS NOT NULL)::INTEGER + (w.nvtx IS NOT NULL)::INTEGER DESC, w.kernel, w.nvtx
) = 1;
