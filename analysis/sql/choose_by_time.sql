-- The window from $start_ns to $end_ns on each GPU; NULL means the start of the GPU's first operation or the
-- end of its last operation.
INSERT INTO _chosen_windows
SELECT
    track,
    (-row_number() OVER (ORDER BY track))::INTEGER,
    CASE WHEN $start_ns IS NULL AND $end_ns IS NULL THEN 'whole' ELSE 'chosen time' END,
    coalesce($start_ns, start_ns),
    coalesce($end_ns, end_ns)
FROM _spans
WHERE coalesce($start_ns, start_ns) < coalesce($end_ns, end_ns);
