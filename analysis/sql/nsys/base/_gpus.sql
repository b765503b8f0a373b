-- The GPUs of each report that ran something.
-- @materialize
CREATE VIEW _gpus AS
SELECT DISTINCT track, report_id, device
FROM _tracks;
