-- Numbered GPUs of each report on which work ran, because numbers sort and join faster than names. Devices
-- are physical (CUDA_VISIBLE_DEVICES renumbers them).
-- @materialize
CREATE VIEW _tracks AS
SELECT DISTINCT l.report_id, l.pid, l.device AS cuda_device, coalesce(d.gpu, l.device) AS device,
    dense_rank() OVER (ORDER BY l.report_id, coalesce(d.gpu, l.device))::INTEGER AS track
FROM (SELECT DISTINCT report_id, pid, device FROM launches) AS l
LEFT JOIN nsys_cuda_devices AS d ON d.report_id = l.report_id AND d.pid = l.pid AND d.device = l.device;
