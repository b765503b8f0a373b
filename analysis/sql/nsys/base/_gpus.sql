-- GPUs of each report on which work ran.
-- @materialize
CREATE VIEW _gpus AS
SELECT DISTINCT track, report_id, device
FROM _tracks;
