-- Calls that block the host until the GPU has finished.
CREATE VIEW _sync_calls AS
SELECT report_id, pid, tid, start_ns, end_ns, dur_ns, name, recorded_name
FROM nsys_api_calls
WHERE name IN (SELECT name FROM _names WHERE kind = 'api' AND is_synchronising(name));
