-- Loads with the timeline that was captured meanwhile, a file in the folder of the requests; `origin_ns` is
-- the start of its clock.
CREATE VIEW _captured_loads AS
SELECT t.report_id, t.started_ns AS origin_ns, l.* RENAME (report_id AS requests_report_id)
FROM request_loads AS l
JOIN reports AS s ON s.report_id = l.report_id
JOIN reports AS t ON t.source_name = l.capture AND t.directory = s.directory;
