-- Changes of the memory in use, bytes: each allocation adds its bytes at its start, and subtracts them at its
-- end. An allocation without a start was there before the first event (-1). `kept_delta` counts the state of
-- optimizers that has no end.
CREATE VIEW _snapshot_changes AS
SELECT report_id, device, coalesce(start_event, -1) AS event, category, scales, bytes AS delta,
    if(category = 'optimizer state' AND end_event IS NULL, bytes, 0) AS kept_delta
FROM _snapshot_lives
UNION ALL
SELECT report_id, device, end_event, category, scales, -bytes, 0
FROM _snapshot_lives
WHERE end_event IS NOT NULL;
