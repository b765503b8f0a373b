-- Time between iterations, with requests in progress, in which the thread of an engine waits until files are
-- on disk, by call.
-- @materialize
CREATE VIEW _engine_flushes AS
SELECT
    o.report_id,
    o.name,
    o.start_ns,
    sum(overlap_ns(b.start_ns, b.end_ns, o.start_ns, o.end_ns))::BIGINT AS time_ns
FROM nsys_osrt AS o
JOIN _engine_windows AS w ON w.report_id = o.report_id AND w.pid = o.pid AND w.tid = o.tid
JOIN _engine_between AS b
    ON b.report_id = o.report_id AND o.start_ns < b.end_ns AND o.end_ns > b.start_ns
WHERE o.name IN (SELECT name FROM _names WHERE kind = 'os' AND is_flushing(name))
GROUP BY o.report_id, o.name, o.start_ns;
