-- GPUs that wait much for input data, and for what share of the window, %.
CREATE VIEW _waits_for_input AS
SELECT c.report_id, c.device, c.share_pct
FROM _timeline_contributors AS c
JOIN _timeline_features AS f USING (report_id, device)
WHERE c.bound = 'host' AND list_contains(f.features, 'input_data');
